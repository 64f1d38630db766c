"""Names by which expressions of plugins know the parts of a domain, and where each is in the XML.

They are the names that KubeVirt's users write: those of the Go module libvirtxml. The table has what guests
of KubeVirt have and what can be added to them; an expression that names more is refused at admission.

A line is ``Type: field …``; types are written without ``Domain`` in front of them. A field is
``Name:type=xml``, where the type is ``string`` and the XML's name the name in lower case unless they are
given. ``*`` after a type makes it a list, ``?`` makes its zero worth writing. In front of the name stands

| mark | where the value is |
|---|---|
| none | in an element inside this one |
| ``@`` | in an attribute |
| ``.`` | in the text of this element |
| ``~`` | in this element itself, whose attributes then are as behind the ``=`` (``attribute:value``, comma) |
| ``^`` | the same, with the attribute at the element around this one |
| ``+`` | the fields of that type are fields of this one |
"""

from __future__ import annotations

TABLE = """
: @Type @ID:int? Name UUID HWUUID Title Description GenID:GenID MaximumMemory:MaxMemory=maxMemory
  Memory:Memory CurrentMemory:CurrentMemory=currentMemory BlockIOTune:BlockIOTune=blkiotune
  MemoryTune:MemoryTune=memtune MemoryBacking:MemoryBacking=memoryBacking VCPU:VCPU IOThreads:uint
  IOThreadIDs:IOThreadIDs DefaultIOThread:DefaultIOThread CPUTune:CPUTune NUMATune:NUMATune Resource:Resource
  SysInfo:SysInfo* OS:OS Features:FeatureList CPU:CPU Clock:Clock OnPoweroff=on_poweroff OnReboot=on_reboot
  OnCrash=on_crash PM:PM Devices:DeviceList SecLabel:SecLabel*
  QEMUCommandline:QEMUCommandline=qemu:commandline
GenID: .Value
MaxMemory: .Value:uint @Unit @Slots:uint
Memory: .Value:uint @Unit @DumpCore=dumpCore
CurrentMemory: .Value:uint @Unit
BlockIOTune: Weight:uint Device:BlockIOTuneDevice*
BlockIOTuneDevice: Path Weight:uint ReadIopsSec:uint=read_iops_sec WriteIopsSec:uint=write_iops_sec
  ReadBytesSec:uint=read_bytes_sec WriteBytesSec:uint=write_bytes_sec
MemoryTune: HardLimit:MemoryTuneLimit=hard_limit SoftLimit:MemoryTuneLimit=soft_limit
  MinGuarantee:MemoryTuneLimit=min_guarantee SwapHardLimit:MemoryTuneLimit=swap_hard_limit
MemoryTuneLimit: .Value:uint @Unit
MemoryBacking: MemoryHugePages:MemoryHugepages=hugepages MemoryNosharepages:MemoryNosharepages=nosharepages
  MemoryLocked:MemoryLocked=locked MemorySource:MemorySource=source MemoryAccess:MemoryAccess=access
  MemoryAllocation:MemoryAllocation=allocation MemoryDiscard:MemoryDiscard=discard
MemoryHugepages: Hugepages:MemoryHugepage*=page
MemoryHugepage: @Size:uint? @Unit @Nodeset
MemoryNosharepages:
MemoryLocked:
MemorySource: @Type
MemoryAccess: @Mode
MemoryAllocation: @Mode @Threads:uint
MemoryDiscard:
VCPU: .Value:uint @Placement @CPUSet @Current:uint
IOThreadIDs: IOThreads:IOThread*=iothread
IOThread: @ID:uint? @PoolMin:uint?=thread_pool_min @PoolMax:uint?=thread_pool_max Poll:IOThreadPoll
IOThreadPoll: @Max:uint? @Grow:uint? @Shrink:uint?
DefaultIOThread: @PoolMin:uint?=thread_pool_min @PoolMax:uint?=thread_pool_max
CPUTune: Shares:CPUTuneShares Period:CPUTunePeriod Quota:CPUTuneQuota
  GlobalPeriod:CPUTunePeriod=global_period GlobalQuota:CPUTuneQuota=global_quota
  EmulatorPeriod:CPUTunePeriod=emulator_period EmulatorQuota:CPUTuneQuota=emulator_quota
  IOThreadPeriod:CPUTunePeriod=iothread_period IOThreadQuota:CPUTuneQuota=iothread_quota
  VCPUPin:CPUTuneVCPUPin* EmulatorPin:CPUTuneEmulatorPin IOThreadPin:CPUTuneIOThreadPin*
  VCPUSched:CPUTuneVCPUSched* EmulatorSched:CPUTuneEmulatorSched
CPUTuneShares: .Value:uint
CPUTunePeriod: .Value:uint
CPUTuneQuota: .Value:int
CPUTuneVCPUPin: @VCPU:uint? @CPUSet
CPUTuneEmulatorPin: @CPUSet
CPUTuneIOThreadPin: @IOThread:uint? @CPUSet
CPUTuneVCPUSched: @VCPUs @Scheduler @Priority:int?
CPUTuneEmulatorSched: @Scheduler @Priority:int?
NUMATune: Memory:NUMATuneMemory MemNodes:NUMATuneMemNode*=memnode
NUMATuneMemory: @Mode @Nodeset @Placement
NUMATuneMemNode: @CellID:uint? @Mode @Nodeset
Resource: Partition
SysInfo: ~SMBIOS:SysInfoSMBIOS=type:smbios ~FWCfg:SysInfoFWCfg=type:fwcfg
SysInfoSMBIOS: BIOS:SysInfoBIOS System:SysInfoSystem BaseBoard:SysInfoBaseBoard*=baseBoard
  Chassis:SysInfoChassis Processor:SysInfoProcessor* OEMStrings:SysInfoOEMStrings=oemStrings
SysInfoBIOS: Entry:SysInfoEntry*
SysInfoSystem: Entry:SysInfoEntry*
SysInfoBaseBoard: Entry:SysInfoEntry*
SysInfoChassis: Entry:SysInfoEntry*
SysInfoProcessor: Entry:SysInfoEntry*
SysInfoOEMStrings: Entry:string*
SysInfoFWCfg: Entry:SysInfoEntry*
SysInfoEntry: @Name @File .Value
OS: Type:OSType @Firmware FirmwareInfo:OSFirmwareInfo=firmware Loader:Loader NVRam:NVRam Kernel Initrd Cmdline
  DTB ACPI:ACPI BootDevices:BootDevice*=boot BootMenu:BootMenu BIOS:BIOS SMBios:SMBios
OSType: @Arch @Machine .Type
OSFirmwareInfo: Features:OSFirmwareFeature*=feature
OSFirmwareFeature: @Enabled @Name
Loader: .Path @Readonly @Secure @Stateless @Type @Format
NVRam: .NVRam @Template @Format @TemplateFormat=templateFormat
ACPI: Tables:ACPITable*=table
ACPITable: @Type .Path
BootDevice: @Dev
BootMenu: @Enable @Timeout
BIOS: @UseSerial @RebootTimeout:int?=rebootTimeout
SMBios: @Mode
FeatureList: PAE:Feature ACPI:Feature APIC:FeatureAPIC HAP:FeatureState HyperV:FeatureHyperV KVM:FeatureKVM
  PVSpinlock:FeatureState PMU:FeatureState VMPort:FeatureState GIC:FeatureGIC SMM:FeatureSMM
  IOAPIC:FeatureIOAPIC HTM:FeatureState NestedHV:FeatureState=nested-hv VMCoreInfo:FeatureState
  CCFAssist:FeatureState=ccf-assist RAS:FeatureState PS2:FeatureState
Feature:
FeatureState: @State
FeatureAPIC: @EOI
FeatureGIC: @Version
FeatureIOAPIC: @Driver
FeatureSMM: @State
FeatureHyperV: @Mode Relaxed:FeatureState VAPIC:FeatureState Spinlocks:FeatureHyperVSpinlocks
  VPIndex:FeatureState Runtime:FeatureState Synic:FeatureState STimer:FeatureHyperVSTimer Reset:FeatureState
  VendorId:FeatureHyperVVendorId=vendor_id Frequencies:FeatureState ReEnlightenment:FeatureState
  TLBFlush:FeatureHyperVTLBFlush IPI:FeatureState EVMCS:FeatureState AVIC:FeatureState
  EMSRBitmap:FeatureState=emsr_bitmap XMMInput:FeatureState=xmm_input
FeatureHyperVSpinlocks: +FeatureState @Retries:uint
FeatureHyperVVendorId: +FeatureState @Value
FeatureHyperVSTimer: +FeatureState Direct:FeatureState
FeatureHyperVTLBFlush: +FeatureState Direct:FeatureState Extended:FeatureState
FeatureKVM: Hidden:FeatureState HintDedicated:FeatureState=hint-dedicated
  PollControl:FeatureState=poll-control PVIPI:FeatureState=pv-ipi
CPU: @Match @Mode @Check @Migratable @DeprecatedFeatures=deprecated_features Model:CPUModel Vendor
  Topology:CPUTopology Cache:CPUCache MaxPhysAddr:CPUMaxPhysAddr Features:CPUFeature*=feature Numa:Numa
CPUModel: @Fallback @VendorID=vendor_id .Value
CPUTopology: @Sockets:int @Dies:int @Clusters:int @Cores:int @Threads:int
CPUFeature: @Policy @Name
CPUCache: @Level:uint @Mode
CPUMaxPhysAddr: @Mode @Bits:uint @Limit:uint
Numa: Cell:Cell*
Cell: @ID:uint? @CPUs @Memory:uint? @Unit @MemAccess=memAccess @Discard Distances:CellDistances
CellDistances: Siblings:CellSibling*=sibling
CellSibling: @ID:uint? @Value:uint?
Clock: @Offset @Basis @Adjustment @TimeZone @Start:uint Timer:Timer*
Timer: @Name @Track @TickPolicy CatchUp:TimerCatchUp @Frequency:uint @Mode @Present
TimerCatchUp: @Threshold:uint @Slew:uint @Limit:uint
PM: SuspendToMem:PMPolicy=suspend-to-mem SuspendToDisk:PMPolicy=suspend-to-disk
PMPolicy: @Enabled
SecLabel: @Type @Model @Relabel Label ImageLabel BaseLabel
QEMUCommandline: Args:QEMUCommandlineArg*=qemu:arg Envs:QEMUCommandlineEnv*=qemu:env
QEMUCommandlineArg: @Value
QEMUCommandlineEnv: @Name @Value
DeviceList: Emulator Disks:Disk*=disk Controllers:Controller*=controller Filesystems:Filesystem*=filesystem
  Interfaces:Interface*=interface Serials:Serial*=serial Consoles:Console*=console Channels:Channel*=channel
  Inputs:Input*=input TPMs:TPM*=tpm Graphics:Graphic*=graphics Sounds:Sound*=sound Audios:Audio*=audio
  Videos:Video*=video Hostdevs:Hostdev*=hostdev RedirDevs:RedirDev*=redirdev Hubs:Hub*=hub
  Watchdogs:Watchdog*=watchdog MemBalloon:MemBalloon RNGs:RNG*=rng Panics:Panic*=panic
  Memorydevs:Memorydev*=memory IOMMUs:IOMMU*=iommu VSock:VSock
Alias: @Name
DeviceACPI: @Index:uint @Nodeset
DeviceBoot: @Order:uint? @LoadParm
ROM: @Bar @File? @Enabled
Address: ~PCI:AddressPCI=type:pci ~Drive:AddressDrive=type:drive
  ~VirtioSerial:AddressVirtioSerial=type:virtio-serial ~USB:AddressUSB=type:usb ~CCW:AddressCCW=type:ccw
AddressPCI: @Domain:uint? @Bus:uint? @Slot:uint? @Function:uint? @MultiFunction
AddressDrive: @Controller:uint? @Bus:uint? @Target:uint? @Unit:uint?
AddressVirtioSerial: @Controller:uint? @Bus:uint? @Port:uint?
AddressUSB: @Bus:uint? @Port @Device:uint?
AddressCCW: @CSSID:uint? @SSID:uint? @DevNo:uint?
AddressMDev: @UUID
DeviceCommon: ACPI:DeviceACPI Alias:Alias Address:Address
VirtioOptions: @IOMMU @ATS @Packed @PagePerVQ=page_per_vq
Disk: +DeviceCommon @Device @RawIO @SGIO @Snapshot @Model Driver:DiskDriver Source:DiskSource
  BlockIO:DiskBlockIO Target:DiskTarget IOTune:DiskIOTune ReadOnly:DiskReadOnly Shareable:DiskShareable
  Transient:DiskTransient Serial WWN Vendor Product Boot:DeviceBoot
DiskDriver: +VirtioOptions @Name @Type @Cache @ErrorPolicy=error_policy @RErrorPolicy=rerror_policy @IO
  @IOEventFD @EventIDX=event_idx @CopyOnRead=copy_on_read @Discard @DiscardNoUnref=discard_no_unref
  @IOThread:uint? @DetectZeros=detect_zeroes @Queues:uint? @QueueSize:uint?=queue_size
DiskSource: ^File:DiskSourceFile=type:file ^Block:DiskSourceBlock=type:block @StartupPolicy=startupPolicy
  @Index:uint
DiskSourceFile: @File @FDGroup
DiskSourceBlock: @Dev
DiskBlockIO: @LogicalBlockSize:uint=logical_block_size @PhysicalBlockSize:uint=physical_block_size
  @DiscardGranularity:uint?=discard_granularity
DiskTarget: @Dev @Bus @Tray @Removable @RotationRate:uint=rotation_rate
DiskReadOnly:
DiskShareable:
DiskTransient: @ShareBacking=shareBacking
DiskIOTune: TotalBytesSec:uint=total_bytes_sec ReadBytesSec:uint=read_bytes_sec
  WriteBytesSec:uint=write_bytes_sec TotalIopsSec:uint=total_iops_sec ReadIopsSec:uint=read_iops_sec
  WriteIopsSec:uint=write_iops_sec TotalBytesSecMax:uint=total_bytes_sec_max
  ReadBytesSecMax:uint=read_bytes_sec_max WriteBytesSecMax:uint=write_bytes_sec_max
  TotalIopsSecMax:uint=total_iops_sec_max ReadIopsSecMax:uint=read_iops_sec_max
  WriteIopsSecMax:uint=write_iops_sec_max SizeIopsSec:uint=size_iops_sec GroupName=group_name
Controller: +DeviceCommon @Type @Index:uint? @Model Driver:ControllerDriver
ControllerDriver: +VirtioOptions @Queues:uint? @CmdPerLUN:uint?=cmd_per_lun @MaxSectors:uint?=max_sectors
  @IOEventFD @IOThread:uint
Filesystem: +DeviceCommon @AccessMode @Model @MultiDevs @FMode @DMode Driver:FilesystemDriver
  Source:FilesystemSource Target:FilesystemTarget ReadOnly:FilesystemReadOnly Boot:DeviceBoot
FilesystemDriver: +VirtioOptions @Type @Format @Name @WRPolicy @Queue:uint
FilesystemSource: ^Mount:FilesystemSourceMount=type:mount
FilesystemSourceMount: @Dir @Socket
FilesystemTarget: @Dir
FilesystemReadOnly:
Interface: +DeviceCommon @Managed @TrustGuestRXFilters=trustGuestRxFilters MAC:InterfaceMAC
  Source:InterfaceSource Boot:DeviceBoot VLan:InterfaceVLan Target:InterfaceTarget Model:InterfaceModel
  Driver:InterfaceDriver Backend:InterfaceBackend Link:InterfaceLink MTU:InterfaceMTU
  Bandwidth:InterfaceBandwidth ROM:ROM
InterfaceMAC: @Address @Type @Check
InterfaceSource: ^User:InterfaceSourceUser=type:user ^Ethernet:InterfaceSourceEthernet=type:ethernet
  ^Bridge:InterfaceSourceBridge=type:bridge ^Network:InterfaceSourceNetwork=type:network
InterfaceSourceUser: @Dev
InterfaceSourceEthernet:
InterfaceSourceBridge: @Bridge
InterfaceSourceNetwork: @Network @PortGroup @Bridge
InterfaceVLan: @Trunk Tags:InterfaceVLanTag*=tag
InterfaceVLanTag: @ID:uint? @NativeMode=nativeMode
InterfaceTarget: @Dev @Managed
InterfaceModel: @Type
InterfaceDriver: +VirtioOptions @Name @TXMode @IOEventFD @EventIDX=event_idx @Queues:uint
  @RXQueueSize:uint=rx_queue_size @TXQueueSize:uint=tx_queue_size @RSS @RSSHashReport=rss_hash_report
InterfaceBackend: @Type @Tap @VHost @LogFile=logFile @Hostname @FQDN
InterfaceLink: @State
InterfaceMTU: @Size:uint?
InterfaceBandwidth: Inbound:InterfaceBandwidthParams Outbound:InterfaceBandwidthParams
InterfaceBandwidthParams: @Average:int? @Peak:int? @Burst:int? @Floor:int?
ChardevSource: ^Null:ChardevSourceNull=type:null ^Pty:ChardevSourcePty=type:pty
  ^File:ChardevSourceFile=type:file ^StdIO:ChardevSourceStdIO=type:stdio ^UNIX:ChardevSourceUNIX=type:unix
  ^SpiceVMC:ChardevSourceSpiceVMC=type:spicevmc ^TCP:ChardevSourceTCP=type:tcp
ChardevSourceNull:
ChardevSourcePty: @Path
ChardevSourceFile: @Path @Append
ChardevSourceStdIO:
ChardevSourceUNIX: @Mode @Path Reconnect:ChardevSourceReconnect
ChardevSourceSpiceVMC:
ChardevSourceTCP: @Mode @Host @Service @TLS Reconnect:ChardevSourceReconnect
ChardevSourceReconnect: @Enabled @Timeout:uint?
ChardevLog: @File @Append
Serial: +DeviceCommon Source:ChardevSource Target:SerialTarget Log:ChardevLog
SerialTarget: @Type @Port:uint? Model:SerialTargetModel
SerialTargetModel: @Name
Console: +DeviceCommon @TTY Source:ChardevSource Target:ConsoleTarget Log:ChardevLog
ConsoleTarget: @Type @Port:uint?
Channel: +DeviceCommon Source:ChardevSource Target:ChannelTarget Log:ChardevLog
ChannelTarget: ~VirtIO:ChannelTargetVirtIO=type:virtio
ChannelTargetVirtIO: @Name @State
Input: +DeviceCommon @Type @Bus @Model Driver:InputDriver
InputDriver: +VirtioOptions
TPM: +DeviceCommon @Model Backend:TPMBackend
TPMBackend: ~Emulator:TPMBackendEmulator=type:emulator
TPMBackendEmulator: @Version @PersistentState=persistent_state @Debug:uint
Graphic: ~VNC:GraphicVNC=type:vnc ~Spice:GraphicSpice=type:spice Audio:GraphicAudio
GraphicVNC: @Socket @Port:int @AutoPort @WebSocket:int @Keymap @SharePolicy=sharePolicy @Passwd
  @PasswdValidTo=passwdValidTo @Connected @PowerControl=powerControl @Listen @Wait
  Listeners:GraphicListener*=listen
GraphicSpice: @Port:int @TLSPort:int=tlsPort @AutoPort @Listen @Keymap @DefaultMode=defaultMode @Passwd
  Listeners:GraphicListener*=listen
GraphicListener: ~Address:GraphicListenerAddress=type:address ~Socket:GraphicListenerSocket=type:socket
GraphicListenerAddress: @Address
GraphicListenerSocket: @Socket
GraphicAudio: @ID:uint
Sound: +DeviceCommon @Model @MultiChannel @Streams:uint Codec:SoundCodec* Audio:SoundAudio Driver:SoundDriver
SoundCodec: @Type
SoundAudio: @ID:uint?
SoundDriver: +VirtioOptions
Audio: @ID:int? @TimerPeriod:uint=timerPeriod ~None:AudioNone=type:none
AudioNone:
Video: +DeviceCommon Model:VideoModel Driver:VideoDriver
VideoModel: @Type @Heads:uint @Ram:uint @VRam:uint @VRam64:uint @VGAMem:uint @Primary @Blob @EDID
  Accel:VideoAccel=acceleration Resolution:VideoResolution
VideoAccel: @Accel3D @Accel2D @RenderNode
VideoResolution: @X:uint? @Y:uint?
VideoDriver: +VirtioOptions @Name @VGAConf
Hostdev: +DeviceCommon @Managed ~SubsysUSB:HostdevSubsysUSB=mode:subsystem,type:usb
  ~SubsysPCI:HostdevSubsysPCI=mode:subsystem,type:pci ~SubsysMDev:HostdevSubsysMDev=mode:subsystem,type:mdev
  Boot:DeviceBoot ROM:ROM
HostdevSubsysUSB: Source:HostdevSubsysUSBSource
HostdevSubsysUSBSource: @GuestReset=guestReset @StartUpPolicy=startupPolicy Address:AddressUSB
  Product:HostDevProductVendorID Vendor:HostDevProductVendorID
HostDevProductVendorID: @ID
HostdevSubsysPCI: @Display @RamFB Driver:HostdevSubsysPCIDriver Source:HostdevSubsysPCISource
HostdevSubsysPCIDriver: @Name @Model @IommuFD
HostdevSubsysPCISource: @WriteFiltering=writeFiltering Address:AddressPCI
HostdevSubsysMDev: @Model @Display @RamFB Source:HostdevSubsysMDevSource
HostdevSubsysMDevSource: Address:AddressMDev
RedirDev: +DeviceCommon @Bus Source:ChardevSource Boot:DeviceBoot
Hub: +DeviceCommon @Type
Watchdog: +DeviceCommon @Model @Action
MemBalloon: +DeviceCommon @Model @AutoDeflate @FreePageReporting=freePageReporting Driver:MemBalloonDriver
  Stats:MemBalloonStats
MemBalloonStats: @Period:uint?
MemBalloonDriver: +VirtioOptions
RNG: +DeviceCommon @Model Driver:RNGDriver Rate:RNGRate Backend:RNGBackend
RNGDriver: +VirtioOptions
RNGRate: @Bytes:uint? @Period:uint
RNGBackend: ~Random:RNGBackendRandom=model:random ~BuiltIn:RNGBackendBuiltIn=model:builtin
RNGBackendRandom: .Device
RNGBackendBuiltIn:
Panic: +DeviceCommon @Model
Memorydev: +DeviceCommon @Model @Access @Discard UUID Target:MemorydevTarget
MemorydevTarget: @DynamicMemslots=dynamicMemslots Size:MemorydevTargetSize Node:MemorydevTargetNode
  Block:MemorydevTargetBlock Requested:MemorydevTargetRequested
MemorydevTargetSize: .Value:uint @Unit
MemorydevTargetNode: .Value:uint
MemorydevTargetBlock: .Value:uint @Unit
MemorydevTargetRequested: .Value:uint @Unit
IOMMU: +DeviceCommon @Model Driver:IOMMUDriver
IOMMUDriver: @IntRemap @CachingMode=caching_mode @EIM @IOTLB @AWBits:uint=aw_bits
VSock: +DeviceCommon @Model CID:VSockCID Driver:VSockDriver
VSockCID: @Auto @Address
VSockDriver: +VirtioOptions
"""
