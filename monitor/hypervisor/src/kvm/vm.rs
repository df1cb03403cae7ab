// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One virtual machine on KVM, from its preparation to its end.

use super::acpi::{self, Registers};
use super::boot::{self, Facts};
use super::bus::Bus;
use super::core::{Core, Parts};
use super::debug::Debug;
use super::device::{self, BRIDGE, Devices, counter};
use super::layout::{DEVICE_PIN, DEVICES, GAP, PINS, SERIAL_PIN, TSS, doorbell};
use super::load::{self, Loaded};
use super::ports::Ports;
use super::{cpuid, host, registers, vcpu};
use crate::device_list::DeviceFigures;
use crate::output::Output;
use crate::output_queue::Outputs;
use crate::ram::Ram;
use crate::threads::Threads;
use anyhow::Context;
use kvm_bindings::{
    KVM_CAP_ENFORCE_PV_FEATURE_CPUID, KVM_CAP_PMU_CAPABILITY, KVM_CAP_SPLIT_IRQCHIP,
    KVM_MAX_CPUID_ENTRIES, KVM_MEM_READONLY, kvm_enable_cap, kvm_userspace_memory_region,
};
use kvm_ioctls::{Cap, Kvm, VcpuFd, VmFd};
use paravane_confine::Files;
use paravane_devices::mmio::PAGE;
use paravane_devices::{Area, Model, Reactor};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Once};
use std::time::{Duration, Instant};

/// Pieces of output that wait for a reader. When they are this many, the guest waits.
const QUEUED: usize = 4096;
/// How long `drop` waits for the machine's threads. One that waits for the host (a flush) may take
/// longer.
const LEAVE: Duration = Duration::from_millis(500);

/// The description of a machine.
#[derive(Clone, Debug)]
pub struct Config<'a> {
    /// The kernel's name, for messages.
    pub name: &'a str,
    /// The kernel's ELF file.
    pub kernel: &'a [u8],
    /// A layer's ROM.
    pub layer: Option<&'a [u8]>,
    /// The kernel's command line.
    pub command_line: &'a str,
    /// The initial RAM disk, empty for none.
    pub initrd: &'a [u8],
    /// Virtual CPUs.
    pub vcpus: u32,
    /// Guest memory in bytes.
    pub memory: u64,
    /// A conformance guest runs, which ends with a verdict.
    pub tests: bool,
    /// The host may use large pages for all guest memory.
    pub large_pages: bool,
    /// The host's KVM emulates each instruction ([`Speed::emulated`](super::speed::Speed)).
    pub emulated: bool,
}

/// A running machine. Dropping it ends the machine. Nothing is left of it except threads of the
/// monitor that wait for the host.
#[derive(Debug)]
pub struct Vm {
    pub(super) core: Arc<Core>,
    observer: Observer,
    threads: Threads,
}

impl Vm {
    /// Prepares a machine with devices, in the order in which the guest sees them: all its threads
    /// run and are confined, and no guest code has run yet.
    ///
    /// # Errors
    /// The host's KVM cannot be used or lacks something, or the input is invalid.
    pub fn prepare(config: &Config<'_>, devices: Vec<Model>) -> anyhow::Result<Vm> {
        let kvm = host::open()?;
        host::check_vcpus(config.vcpus, kvm.get_max_vcpus())?;
        host::check_memory(config.memory, &kvm)?;
        let ram = Ram::around(config.memory, GAP, config.large_pages)?;
        let devices = Devices::new(devices)?;
        let machine = machine(&kvm).context("cannot make a virtual machine")?;
        let steady = host::relies_on_counter();
        give_memory(&machine, &ram, devices.area.as_ref())
            .context("the host's KVM does not take guest memory")?;
        let kernel = load::load(&ram, config.name, config.kernel)?;
        let tables = acpi::tables(config.vcpus, &registers_of(&devices)?);
        let vcpus = vcpus(&kvm, &machine, config, &kernel, devices.bridges(), steady)
            .context("cannot make the virtual CPUs")?;
        let rate = vcpus.first().and_then(|vcpu| vcpu.get_tsc_khz().ok());
        let command_line = match rate {
            // There is nothing by which Linux could measure it well.
            Some(khz) if !config.tests => {
                // The counter is no clock for a guest if it is none for the host.
                let reliable = if steady { " tsc=reliable" } else { "" };
                format!("{} tsc_early_khz={khz}{reliable}", config.command_line)
            }
            _ => config.command_line.to_string(),
        };
        let facts = Facts {
            command_line: command_line.trim_start(),
            initrd: config.initrd,
            rom: config.layer,
            tables: &tables,
        };
        boot::store(&ram, &kernel, &facts)?;
        devices.register(&machine)?;
        let serial = counter()?;
        machine
            .register_irqfd(&serial, SERIAL_PIN)
            .context("cannot connect an interrupt")?;
        let outputs = Arc::new(Outputs::new(QUEUED)?);
        let core = Arc::new(Core::new(Parts {
            ports: Ports::new(&outputs, serial, config.tests),
            bus: Bus::new(devices.ports()),
            reactor: Reactor::new()?,
            area: devices.area.clone(),
            vcpus: vcpus.len(),
            block_interrupts: host::steps_without_interrupts(&kvm),
            machine,
            ram,
            outputs,
        }));
        let mut vm = Vm {
            observer: Observer {
                core: Arc::clone(&core),
                begun: Instant::now(),
            },
            core,
            threads: Threads::default(),
        };
        vm.start_threads(vcpus, devices)?;
        tracing::info!(entry = ?kernel.entry, vcpus = config.vcpus, "the kernel can start");
        Ok(vm)
    }

    fn start_threads(&mut self, vcpus: Vec<VcpuFd>, devices: Devices) -> anyhow::Result<()> {
        catch_kicks().context("cannot handle signals")?;
        let ports = devices.ports();
        // A vCPU that may do work of a device needs what that needs of the host.
        let policy = if devices.any_rare() {
            "vcpu-cards"
        } else {
            "vcpu"
        };
        let threads = devices.into_threads(&self.core)?;
        if !threads.is_empty() {
            self.spawn("device-files", "device-files", Files::none(), move |core| {
                device::run_reactor(core, &ports);
            })?;
        }
        for thread in threads {
            let (name, files) = (thread.name(), thread.files());
            let policy = format!("kvm-{name}");
            self.spawn(&name, &policy, files, |_| thread.run())?;
        }
        for (number, vcpu) in vcpus.into_iter().enumerate() {
            let name = format!("vcpu-{number}");
            self.spawn(&name, policy, Files::none(), move |core| {
                vcpu::run(core, number, vcpu);
            })?;
        }
        Ok(())
    }

    /// Starts a thread under a policy. Returns when the policy is in force.
    fn spawn(
        &mut self,
        name: &str,
        policy: &str,
        files: Files,
        body: impl FnOnce(&Arc<Core>) + Send + 'static,
    ) -> anyhow::Result<()> {
        let core = Arc::clone(&self.core);
        let ending = Arc::clone(&self.core);
        let fail = move |why| ending.fail_without_signal(why);
        self.threads
            .start_confined(name, policy, files, fail, move || body(&core))
    }

    /// Lets vCPU 0 enter the kernel.
    pub fn start_kernel(&self) {
        self.core.start();
    }

    /// The console and the end.
    pub(crate) fn outputs(&self) -> &Arc<Outputs<Output>> {
        &self.core.outputs
    }

    /// The next output, if there is any.
    pub fn next(&self) -> Option<Output> {
        self.core.outputs.pop()
    }

    /// Becomes readable when there is output.
    pub fn bell(&self) -> BorrowedFd<'_> {
        self.core.outputs.bell()
    }

    /// Starts the thread that serves debuggers. vCPU 0 stops before its first instruction. `bell`
    /// rings when a vCPU may have stopped or the machine must end.
    ///
    /// # Errors
    /// The thread cannot be started or confined.
    pub fn debug_with(
        &mut self,
        bell: OwnedFd,
        body: impl FnOnce(Debug) + Send + 'static,
    ) -> anyhow::Result<()> {
        self.core.stops.enable(bell);
        let debug = Debug::new(&self.core);
        self.spawn("gdb", "gdb", Files::none(), move |_| body(debug))
    }

    /// Sets the exit code that a debugger gets.
    pub fn set_exit_code(&self, code: u8) {
        self.core.end.set_exit_code(code);
    }

    /// Sends all vCPUs a non-maskable interrupt. A kernel then reports what it was doing.
    pub fn nmi(&self) {
        self.core.nmi();
    }

    /// Read access to its statistics, which can be given to another thread.
    pub fn observer(&self) -> Observer {
        self.observer.clone()
    }
}

impl Drop for Vm {
    fn drop(&mut self) {
        // First, so that a thread that waits for a reader goes on.
        self.core.outputs.close();
        self.core.stop();
        let begun = Instant::now();
        let late = |_: &[&str]| begun.elapsed() >= LEAVE;
        // A vCPU that was about to enter the guest has missed the last one.
        self.threads.end(late, || self.core.wake_all());
    }
}

/// Read access to a machine's statistics. It does not keep the machine running.
#[derive(Clone, Debug)]
pub struct Observer {
    core: Arc<Core>,
    begun: Instant,
}

impl Observer {
    /// The time since the machine was prepared.
    pub fn uptime(&self) -> Duration {
        self.begun.elapsed()
    }

    /// Guest memory in bytes.
    pub fn memory(&self) -> u64 {
        self.core.ram.size()
    }

    /// The exits of each vCPU to this program.
    pub fn exits(&self) -> Vec<u64> {
        let each = self.core.vcpus.iter();
        each.map(|vcpu| vcpu.exits.load(Ordering::Relaxed))
            .collect()
    }

    /// The devices and what they have counted, in the guest's order.
    pub fn devices(&self) -> Vec<DeviceFigures> {
        self.core.devices.figures()
    }

    /// Sets an attribute of all devices that have it. Returns how many these are.
    pub fn set(&self, attribute: &str, microseconds: u32) -> usize {
        self.core.devices.set(attribute, microseconds)
    }
}

/// The machine has no performance counters (KVM_PMU_CAP_DISABLE): for them the host's kernel would
/// make events of its own, which a guest of processes cannot have either.
const NO_COUNTERS: i32 = 1;

/// KVM's machine with local APICs in the host's kernel, and no other interrupt controllers there.
fn machine(kvm: &Kvm) -> anyhow::Result<VmFd> {
    let machine = host::create(kvm)?;
    if machine.check_extension(Cap::SetTssAddr) {
        machine.set_tss_address(usize::try_from(TSS)?)?;
    }
    let mut split = kvm_enable_cap {
        cap: KVM_CAP_SPLIT_IRQCHIP,
        ..Default::default()
    };
    split.args[0] = PINS.into();
    machine.enable_cap(&split)?;
    // Before Linux 5.18 the guest only does not learn of the counters (`cpuid`).
    if machine.check_extension_raw(KVM_CAP_PMU_CAPABILITY.into()) & NO_COUNTERS != 0 {
        let mut none = kvm_enable_cap {
            cap: KVM_CAP_PMU_CAPABILITY,
            ..Default::default()
        };
        none.args[0] = NO_COUNTERS.try_into()?;
        machine.enable_cap(&none)?;
    }
    Ok(machine)
}

/// Shows the guest its memory, and the devices' pages read-only.
fn give_memory(machine: &VmFd, ram: &Ram, area: Option<&Arc<Area>>) -> anyhow::Result<()> {
    let regions = ram.regions().iter();
    let mut slots: Vec<_> = regions
        .map(|region| kvm_userspace_memory_region {
            guest_phys_addr: region.gpa,
            memory_size: region.size,
            userspace_addr: region.host_address(),
            ..Default::default()
        })
        .collect();
    if let Some(area) = area {
        slots.push(kvm_userspace_memory_region {
            guest_phys_addr: DEVICES,
            memory_size: (area.count() * PAGE) as u64,
            userspace_addr: area.page(0).register(0).as_ptr().addr() as u64,
            flags: KVM_MEM_READONLY,
            ..Default::default()
        });
    }
    for (slot, mut region) in (0..).zip(slots) {
        region.slot = slot;
        // SAFETY: the memory stays mapped until KVM's machine is freed: the machine and its virtual
        // CPUs are only used by threads that hold `Core`, which holds both.
        unsafe { machine.set_user_memory_region(region)? };
    }
    Ok(())
}

fn registers_of(devices: &Devices) -> anyhow::Result<Vec<Registers>> {
    let size = u32::try_from(PAGE)?;
    let first = u32::try_from(DEVICES)?;
    let one = |(number, kind): (u16, u32)| Registers {
        doorbell: (kind == BRIDGE).then(|| doorbell(number)),
        address: first + u32::from(number) * size,
        size,
        pin: DEVICE_PIN + u32::from(number),
    };
    Ok((0..).zip(devices.kinds()).map(one).collect())
}

fn vcpus(
    kvm: &Kvm,
    machine: &VmFd,
    config: &Config<'_>,
    kernel: &Loaded,
    bridges: u32,
    steady: bool,
) -> anyhow::Result<Vec<VcpuFd>> {
    let (mut all, count) = (Vec::new(), config.vcpus);
    for number in 0..count {
        let vcpu = machine.create_vcpu(number.into())?;
        let mut features = kvm.get_supported_cpuid(KVM_MAX_CPUID_ENTRIES)?;
        cpuid::adapt(&mut features, number, count)?;
        if !steady {
            cpuid::hide_steady_counter(&mut features);
        }
        if config.emulated {
            cpuid::hide_hypercalls(&mut features);
        }
        cpuid::offer_bus(&mut features, bridges)?;
        vcpu.set_cpuid2(&features)?;
        only_what_is_offered(machine, &vcpu)?;
        if cpuid::is_intel(&features) {
            // Fails only on a KVM without the register. The guest then copies memory a bit slower.
            let _ = registers::enable_fast_strings(&vcpu);
        }
        if let Some(enabled) = cpuid::extended_state(&features) {
            // See there. A KVM that cannot do this has no such processor.
            let _ = vcpu.set_xcrs(&registers::extended_control(enabled));
        }
        if number == 0 {
            let mut special = vcpu.get_sregs()?;
            let general = registers::start(kernel.entry, &mut special);
            vcpu.set_sregs(&special)?;
            vcpu.set_regs(&general)?;
        }
        all.push(vcpu);
    }
    Ok(all)
}

/// A hypercall or a register of KVM's that the cpuid instruction does not offer is refused. Before
/// Linux 5.10 KVM has all of them for every guest.
fn only_what_is_offered(machine: &VmFd, vcpu: &VcpuFd) -> anyhow::Result<()> {
    if machine.check_extension_raw(KVM_CAP_ENFORCE_PV_FEATURE_CPUID.into()) > 0 {
        let mut enforce = kvm_enable_cap {
            cap: KVM_CAP_ENFORCE_PV_FEATURE_CPUID,
            ..Default::default()
        };
        enforce.args[0] = 1;
        vcpu.enable_cap(&enforce)?;
    }
    Ok(())
}

/// The signal that interrupts a vCPU is ignored by default, and would then interrupt nothing.
fn catch_kicks() -> std::io::Result<()> {
    static ONCE: Once = Once::new();
    let mut result = Ok(());
    ONCE.call_once(|| {
        // SAFETY: the handler does nothing.
        let caught = unsafe { signal_hook::low_level::register(libc::SIGURG, || {}) };
        result = caught.map(drop);
    });
    result
}
