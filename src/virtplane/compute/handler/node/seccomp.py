"""The seccomp profile of the servers of shared folders, which virt-handler installs on its node.

QEMU's virtiofsd changes its root folder to the shared one, for which it must be root of a user namespace. The
profiles of container runtimes refuse that to everybody without privileges. This one is for these servers
alone, is stricter in all else, and allows no other kind of namespace: root of a user namespace that has no
mounts and no network of its own can do little more than change its root folder.
"""

from __future__ import annotations

import errno
import os

import orjson

from kubecore.json import JsonObject
from virtplane.api.paths import SECCOMP_DIR, VIRTIOFS_SECCOMP_PROFILE
from virtplane.compute.handler.rooted import Root
from virtplane.compute.handler.settings import HandlerSettings

_CLONE_FS = 0x200
_CLONE_NEWUSER = 0x10000000
_NEW_NAMESPACES = 0x7E020000
"""The flags of ``clone`` that make namespaces: cgroup, uts, ipc, user, pid, net and mount."""

_PROCESSES = """
arch_prctl brk clock_getres clock_gettime clock_nanosleep execve execveat exit exit_group futex
get_mempolicy get_robust_list getcpu getcwd getegid geteuid getgid getgroups getpgid getpgrp getpid getppid
getpriority getrandom getresgid getresuid getrlimit getrusage getsid gettid gettimeofday getuid kill madvise
membarrier mincore mmap mprotect mremap munmap nanosleep pause prctl prlimit64 restart_syscall rseq
rt_sigaction rt_sigpending rt_sigprocmask rt_sigqueueinfo rt_sigreturn rt_sigsuspend rt_sigtimedwait
sched_get_priority_max sched_get_priority_min sched_getaffinity sched_getattr sched_getparam
sched_getscheduler sched_setaffinity sched_setattr sched_yield seccomp set_mempolicy set_robust_list
set_tid_address setpgid setpriority setsid sigaltstack sysinfo tgkill time times umask uname vfork fork
wait4 waitid
"""
_USERS = (
    "capget capset chroot setfsgid setfsuid setgid setgroups setregid setresgid setresuid setreuid setuid"
)
_EVENTS = """
dup dup2 dup3 epoll_create epoll_create1 epoll_ctl epoll_pwait epoll_wait eventfd eventfd2 ioctl pipe pipe2
poll ppoll pselect6 select timerfd_create timerfd_gettime timerfd_settime memfd_create
"""
_SOCKETS = """
accept accept4 bind connect getpeername getsockname getsockopt listen recvfrom recvmsg sendmsg sendto
setsockopt shutdown socketpair
"""
_FILES = """
access chdir chmod chown close close_range copy_file_range creat faccessat faccessat2 fadvise64 fallocate
fchdir fchmod fchmodat fchmodat2 fchown fchownat fcntl fdatasync fgetxattr flistxattr flock fremovexattr
fsetxattr fstat fstatfs fsync ftruncate futimesat getdents getdents64 getxattr lchown lgetxattr link linkat
listxattr llistxattr lremovexattr lseek lsetxattr lstat mkdir mkdirat mknod mknodat name_to_handle_at
newfstatat open openat openat2 pread64 preadv preadv2 pwrite64 pwritev pwritev2 read readahead readlink
readlinkat readv removexattr rename renameat renameat2 rmdir sendfile setxattr splice stat statfs statx
symlink symlinkat sync_file_range syncfs truncate unlink unlinkat utime utimensat utimes write writev
"""
_ALLOWED = tuple(
    sorted({*_PROCESSES.split(), *_USERS.split(), *_EVENTS.split(), *_SOCKETS.split(), *_FILES.split()})
)
_UNIX = 1
"""The only address family of their sockets."""


def profile() -> JsonObject:
    """The profile, in the form of the runtime specification of OCI."""
    return {
        "defaultAction": "SCMP_ACT_ERRNO",
        "defaultErrnoRet": errno.EPERM,
        "syscalls": [
            {"names": list(_ALLOWED), "action": "SCMP_ACT_ALLOW"},
            _if("socket", _UNIX),
            _if("unshare", _CLONE_NEWUSER),
            _if("unshare", _CLONE_FS),
            {
                "names": ["clone"],
                "action": "SCMP_ACT_ALLOW",
                "args": [{"index": 0, "value": _NEW_NAMESPACES, "valueTwo": 0, "op": "SCMP_CMP_MASKED_EQ"}],
            },
            # Its flags are in memory, where a filter cannot look; the C library falls back to the other call.
            {"names": ["clone3"], "action": "SCMP_ACT_ERRNO", "errnoRet": errno.ENOSYS},
        ],
    }


def _if(call: str, argument: int) -> JsonObject:
    """Allow `call` where `argument` is its first."""
    condition = {"index": 0, "value": argument, "op": "SCMP_CMP_EQ"}
    return {"names": [call], "action": "SCMP_ACT_ALLOW", "args": [condition]}


def install(settings: HandlerSettings) -> None:
    """Put the profile where the node's kubelet and container runtime look for it. Raises OSError."""
    content = orjson.dumps(profile())

    def write(descriptor: int) -> None:
        with os.fdopen(descriptor, "wb", closefd=False) as file:
            file.write(content)

    with Root(settings.kubelet_root) as root:
        root.create(f"{SECCOMP_DIR}/{VIRTIOFS_SECCOMP_PROFILE}", write, owner=0)
