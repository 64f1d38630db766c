"""What goes into the image of the product, and how its programs start."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

from virtplane.image import distribution, product, system
from virtplane.image.commands import BuildError, run


def _imports(source: str) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
    return found


def test_apt_sees_a_machine_without_packages_and_writes_nothing_of_the_hosts() -> None:
    command = distribution.download_command(Path("/some-folder/debs"), ["busybox-static", "runc"])
    options = [command[index + 1] for index, word in enumerate(command) if word == "-o"]
    assert "Dir::State::status=/some-folder/debs/status" in options, "locks are made beside it"
    assert "Dir::Cache::archives=/some-folder/debs" in options
    assert {"Dir::Cache::pkgcache=", "Dir::Cache::srcpkgcache="} <= set(options)
    assert "--download-only" in command
    assert command[command.index("install") + 1 :] == ["busybox-static", "runc"]


def test_the_image_has_the_packages_of_the_entry_script_that_containers_need() -> None:
    script = (product.checkout() / "virtplane").read_text()
    listed = set(script.split('packages="')[1].split('"')[0].split())
    only_on_hosts = {"python3-venv", "containerd", "runc", "containernetworking-plugins"}
    assert listed - only_on_hosts <= set(distribution.PACKAGES)


def test_a_packages_name_comes_out_of_its_file_name() -> None:
    assert distribution.package_of(Path("/x/libc6_2.36-9_amd64.deb")) == "libc6"


def _deb(folder: Path, name: str, files: dict[str, str]) -> Path:
    tree = folder / name
    control = tree / "DEBIAN"
    control.mkdir(parents=True)
    (control / "control").write_text(
        f"Package: {name}\nVersion: 1\nArchitecture: all\nMaintainer: A <a@example.com>\nDescription: a\n"
    )
    for path, text in files.items():
        (tree / path).parent.mkdir(parents=True, exist_ok=True)
        (tree / path).write_text(text)
    deb = folder / f"{name}_1_all.deb"
    run(["dpkg-deb", "--root-owner-group", "--build", str(tree), str(deb)], "a package for a test")
    return deb


@pytest.mark.skipif(not Path("/usr/bin/dpkg-deb").exists(), reason="dpkg-deb is not installed")
def test_packages_are_unpacked_into_a_merged_usr_without_documentation_but_copyrights(tmp_path: Path) -> None:
    documents = ("copyright", "changelog.gz", "contributors", "NEWS.gz", "examples/copyright")
    debs = [
        _deb(tmp_path, "old", {"lib/a.so": "a"} | {f"usr/share/doc/old/{name}": "d" for name in documents}),
        _deb(tmp_path, "new", {"usr/lib/b.so": "b", "etc/apt/sources.list": "s"}),
    ]
    tree = tmp_path / "tree"
    distribution.unpack(debs, tree)
    assert (tree / "lib").readlink() == Path("usr/lib")
    assert sorted(path.name for path in (tree / "usr/lib").iterdir()) == ["a.so", "b.so"]
    assert [path.name for path in (tree / "usr/share/doc/old").rglob("*")] == ["copyright"]
    assert not (tree / "etc/apt").exists()
    assert "Version: 1\n" in (tree / "var/lib/dpkg/status.d/old").read_text()


@pytest.mark.skipif(not Path("/usr/bin/dpkg-deb").exists(), reason="dpkg-deb is not installed")
def test_a_damaged_package_is_named(tmp_path: Path) -> None:
    broken = tmp_path / "broken_1_all.deb"
    broken.write_text("not a package")
    with pytest.raises(BuildError, match=r"broken_1_all\.deb could not be unpacked"):
        distribution.unpack([broken], tmp_path / "tree")


def test_the_unpacked_python_tells_its_version(tmp_path: Path) -> None:
    (tmp_path / "usr/bin").mkdir(parents=True)
    with pytest.raises(BuildError):
        distribution.python_version(tmp_path)
    (tmp_path / "usr/bin/python3").symlink_to("python3.12")
    assert distribution.python_version(tmp_path) == "3.12"


def test_the_system_has_the_users_of_containers(tmp_path: Path) -> None:
    (tmp_path / "var/run").mkdir(parents=True)
    system.complete(tmp_path)
    users = {line.split(":")[0]: line.split(":")[2] for line in (tmp_path / "etc/passwd").read_text().split()}
    assert users == {"root": "0", "nobody": "65534", "qemu": "107", "virtplane": "1001"}
    groups = {line.split(":")[0]: line.split(":")[2] for line in (tmp_path / "etc/group").read_text().split()}
    assert groups["qemu"] == "107"
    assert (tmp_path / "tmp").stat().st_mode & 0o7777 == 0o1777


def test_links_of_the_system_lead_nowhere_else_when_seen_from_outside(tmp_path: Path) -> None:
    (tmp_path / "var").mkdir()
    (tmp_path / "var/run").symlink_to("/run")
    system.complete(tmp_path)
    assert (tmp_path / "var/run").resolve() == tmp_path / "run"
    assert (tmp_path / "var/lock").resolve() == tmp_path / "run/lock"


def test_the_product_is_copied_without_the_embedded_cluster(tmp_path: Path) -> None:
    product.install_product(product.checkout(), tmp_path)
    packages = tmp_path / product.FOLDER
    assert sorted(path.name for path in packages.iterdir()) == ["kubecore", "virtplane"]
    assert (packages / "virtplane/examples/demo-vm.yaml").is_file()
    assert not list(tmp_path.rglob("__pycache__"))
    assert sorted(path.name for path in (tmp_path / "usr/bin").iterdir()) == sorted(product.PROGRAMS)
    assert all(os.access(path, os.X_OK) for path in (tmp_path / "usr/bin").iterdir())
    path_file = tmp_path / "usr/lib/python3/dist-packages/virtplane.pth"
    assert path_file.read_text() == "/usr/lib/virtplane\n"


def test_every_program_starts_the_distributions_python_with_an_existing_module() -> None:
    for text in product.PROGRAMS.values():
        assert text.startswith("#!/usr/bin/python3")
        (module,) = _imports(text) - {"sys"}
        assert (product.checkout() / "src" / f"{module.replace('.', '/')}.py").is_file()


def test_the_launcher_needs_nothing_but_the_standard_library() -> None:
    source = product.checkout() / "src/virtplane/compute/launcher"
    wanted = set().union(*(_imports(path.read_text()) for path in source.glob("*.py")))
    foreign = {name for name in wanted if name.partition(".")[0] not in sys.stdlib_module_names}
    assert {name for name in foreign if not name.startswith("virtplane.compute.launcher")} == set()
    code = f"import sys; sys.path.insert(0, {str(product.checkout() / 'src')!r}); "
    code += "import virtplane.compute.launcher.main"
    subprocess.run([sys.executable, "-I", "-S", "-c", code], check=True, timeout=10)


def test_modules_are_compiled_for_the_places_where_they_will_be(tmp_path: Path) -> None:
    here = f"{sys.version_info.major}.{sys.version_info.minor}"
    module = tmp_path / product.FOLDER / "package/module.py"
    module.parent.mkdir(parents=True)
    module.write_text("x = 1\n")
    product.compile_python(tmp_path, here)
    (compiled,) = module.parent.glob("__pycache__/module.*.pyc")
    content = compiled.read_bytes()
    assert content[4:8] == (1).to_bytes(4, "little"), "checked neither against times nor against the source"
    assert b"/usr/lib/virtplane/package/module.py" in content
    with pytest.raises(BuildError, match=r"3\.1, this one"):
        product.compile_python(tmp_path, "3.1")


def test_a_programs_failure_carries_its_words_and_what_to_do() -> None:
    with pytest.raises(BuildError) as caught:
        run(["sh", "-c", "echo no space >&2; exit 3"], "Something failed.", "Make room.")
    error = caught.value
    assert (error.what, error.why, error.do) == (
        "Something failed.",
        "sh ended with 3: no space",
        "Make room.",
    )
    with pytest.raises(BuildError, match="There is no program no-such-program"):
        run(["no-such-program"], "Something failed.")
