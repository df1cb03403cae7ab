// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One virtual machine on the process hypervisor, from its preparation to its end.

use super::boot;
use super::budget::Budget;
use super::clock::Clock;
use super::core::Core;
use super::debug::Debug;
use super::device::{self, Devices};
use super::doorbell;
use super::host_clocks::Sample;
use super::integrity::Integrity;
use super::kernel::Kernel;
use super::layer::Layer;
use super::layer_heuristics::LayerHeuristics;
use super::limits;
use super::memory_accounts::Accounts;
use super::observer::Observer;
use super::placement::{self, Balance, Load};
use super::shared::Shared;
use super::shared_setup;
use super::signal_scope::SignalScope;
use super::supervisor::{self, Pool};
use super::sys;
use super::vcpu_counters;
use super::watch::Regular;
use super::watch_sleep::WatchSleep;
use super::{alarm, host_cpu, kick, kick_service, watch};
use crate::Counters;
use crate::output::Output;
use crate::output_queue::Outputs;
use crate::ram::Ram;
use crate::size::size;
use crate::threads::Threads;
use anyhow::{Context, bail};
use paravane_abi::process as ph;
use paravane_confine::Files;
use paravane_devices::Model;
use paravane_user_io::text;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

/// Processes at the start, if the limit allows that many. More follow when the guest uses them.
const FIRST_PROCESSES: u32 = 4;
/// The name of the thread that ends the machine's processes.
const SUPERVISOR: &str = "supervisor";
/// How long `drop` waits for that thread to see the end of the machine's processes. They have been
/// killed, and end without it.
pub const PROCESSES_END: Duration = Duration::from_millis(1250);
/// How long `drop` waits for the other threads after the machine's processes have ended. A thread
/// that waits for the host (a file that another process holds, a flush) may take longer.
const LEAVE: Duration = Duration::from_millis(500);
/// Pieces of output that wait for a reader. When they are this many, the guest waits.
const QUEUED: usize = 64;

/// The description of a machine.
#[derive(Clone, Debug)]
pub struct Config<'a> {
    /// The kernel's name, for messages.
    pub name: &'a str,
    /// The kernel's ELF file.
    pub kernel: &'a [u8],
    /// The layer's program.
    pub layer: &'static [u8],
    /// The kernel's command line.
    pub command_line: &'a str,
    /// The initial RAM disk, empty for none.
    pub initrd: &'a [u8],
    /// Virtual CPUs.
    pub vcpus: u32,
    /// Guest memory in bytes.
    pub memory: u64,
    /// The number of address-space processes; as many as the host allows if `None`.
    pub spaces: Option<u32>,
    /// Debuggers may attach to the processes.
    pub debuggable: bool,
    /// What makes it faster.
    pub heuristics: Heuristics,
}

/// What makes a machine faster. Each can be off, for measurements; by default all are on.
#[derive(Clone, Copy, Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is independent of the others"
)]
pub struct Heuristics {
    /// The threads of devices may follow the vCPUs that wait for them.
    pub device_place: bool,
    /// The host may use large pages for all guest memory.
    pub large_pages: bool,
    /// Those of the layer.
    pub layer: LayerHeuristics,
    /// vCPUs take turns where there are more busy ones than CPUs.
    pub cpu_turns: bool,
    /// A vCPU that waits for a disk may try other CPUs, if `device_place` is on.
    pub disk_cpus: bool,
}

impl Default for Heuristics {
    fn default() -> Self {
        Heuristics {
            device_place: true,
            large_pages: true,
            layer: LayerHeuristics::default(),
            cpu_turns: true,
            disk_cpus: true,
        }
    }
}

/// A running machine. Dropping it ends the machine. Nothing is left of it except threads of the
/// monitor that wait for the host.
#[derive(Debug)]
pub struct Vm {
    core: Arc<Core>,
    observer: Observer,
    outputs: Arc<Outputs<Output>>,
    threads: Threads,
    debug: Debug,
    signal_scope: SignalScope,
}

impl Vm {
    /// Starts a machine without devices.
    pub fn start(config: &Config<'_>) -> anyhow::Result<Vm> {
        Vm::start_with(config, Vec::new())
    }

    /// Starts a machine with devices, in the order in which the guest sees them.
    pub fn start_with(config: &Config<'_>, devices: Vec<Model>) -> anyhow::Result<Vm> {
        let vm = Vm::prepare(config, devices)?;
        vm.start_kernel();
        Ok(vm)
    }

    /// Prepares a machine: all its threads run and are confined, and no guest code has run yet.
    pub fn prepare(config: &Config<'_>, devices: Vec<Model>) -> anyhow::Result<Vm> {
        let (clock_start, load_start) = (Sample::take(), Load::sample());
        host_cpu::check()?;
        if config.vcpus == 0 || u64::from(config.vcpus) > ph::PHV_MAX_VCPUS {
            bail!(
                "{} virtual CPUs: 1 to {} are possible",
                config.vcpus,
                ph::PHV_MAX_VCPUS
            );
        }
        let pool = pool(config)?;
        let signal_scope = SignalScope::of_this_host();
        tracing::info!(by = signal_scope.word(), "signals are kept inside");
        let layer = Layer::read(config.layer)?;
        let ram = Ram::new(config.memory, config.heuristics.large_pages)?;
        let devices = Devices::new(devices, ram.size(), config.heuristics)?;
        let kernel = Kernel::read(config.kernel, ram.size() - boot::RESERVED)
            .with_context(|| format!("guest {}", config.name))?;
        kernel.store(&ram)?;
        let mut clock = Clock::new(clock_start);
        let facts = boot::Facts {
            command_line: config.command_line,
            initrd: config.initrd,
            vcpus: config.vcpus,
            layer_size: layer.size,
            tsc_hz: clock.hz(),
            devices: &devices.table(),
        };
        let start = boot::store(&ram, &kernel, &facts)?;
        let budget = Budget::new(ram.size(), config.vcpus.into());
        let shared = Shared::new(budget.pool_chunks() * ph::PHV_POOL_CHUNK)
            .context("cannot make the shared area")?;
        shared_setup::fill(&shared, config, pool, &ram, &kernel, &start)?;
        shared_setup::fill_flags(&shared, config, signal_scope)?;
        shared_setup::fill_devices(&shared, &devices)?;
        shared_setup::fill_budget(&shared, &budget)?;
        shared_setup::install_filter(&shared, &layer, &ram, &devices, signal_scope)?;
        #[cfg(feature = "test-hooks")]
        if super::clock::DISTURB.load(Ordering::Relaxed) {
            clock.disturb();
        }
        clock.publish(&shared);

        let core = Arc::new(Core::new(shared, size(config.vcpus.into()))?);
        #[cfg(feature = "test-hooks")]
        super::host_clocks::bent::show_layer(&core);
        let cpus = placement::choose(
            core.vcpus,
            &placement::allowed(),
            &load_start,
            &Load::sample(),
            std::process::id(),
        );
        for (vcpu, cpu) in cpus.into_iter().enumerate() {
            core.cpus.set(&core.shared, vcpu, cpu);
        }
        let debug = Debug::new(
            Arc::clone(&core),
            ram.memory(),
            &kernel.windows,
            kernel.delta,
            kernel.direct_map(ram.size()),
            clock.hz(),
        );
        let mut vm = Vm {
            observer: Observer::new(&core, ram.size()),
            core,
            signal_scope,
            debug,
            outputs: Arc::new(Outputs::new(QUEUED)?),
            threads: Threads::default(),
        };
        let regular = Regular {
            balance: Balance::new(&vm.core, config.heuristics.cpu_turns),
            clock,
        };
        vm.start_threads(layer, ram, pool, regular, budget, devices)?;
        tracing::info!(
            entry = format_args!("{:#x}", kernel.entry),
            limit = pool.limit,
            "the kernel can start"
        );
        Ok(vm)
    }

    fn start_threads(
        &mut self,
        layer: Layer<'static>,
        ram: Ram,
        pool: Pool,
        regular: Regular,
        budget: Budget,
        devices: Devices,
    ) -> anyhow::Result<()> {
        // When the zygote ends, its children become ours and we can wait for them. In containers,
        // process 1 often does not wait for orphans.
        // SAFETY: sets an attribute of this process.
        unsafe {
            libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
        }
        let area = devices.area().cloned();
        let device_threads = devices.into_threads(&self.core, &ram.memory())?;
        if !device_threads.is_empty() {
            self.spawn("device-files", Files::none(), |core| {
                device::run_reactor(core)
            })?;
        }
        for thread in device_threads {
            let (name, files) = (thread.name(), thread.files());
            self.spawn(&name, files, |_| thread.run())?;
        }
        let (started, start) = channel();
        let signal_scope = self.signal_scope;
        // The supervisor confines itself after it has started the machine's processes.
        let core = Arc::clone(&self.core);
        self.threads.start(SUPERVISOR, ends(&core), move || {
            supervisor::run(
                &core,
                &layer,
                &ram,
                area.as_deref(),
                pool,
                signal_scope,
                &started,
            );
        })?;
        start.recv().context("the supervisor's thread ended")??;
        let accounts = Accounts::new(
            budget,
            limits::mappings().into(),
            supervisor::countable(&self.core),
        );
        let integrity = Integrity::of(&self.core.shared, self.core.vcpus);
        let sleep = WatchSleep::new().context("cannot watch the host's clock")?;
        // Landlock would hide the processes' lists of mappings from it.
        self.spawn("watch", Files::any(), move |core| {
            watch::run(core, &sleep, regular, accounts, integrity)
        })?;
        self.spawn("alarms", Files::none(), |core| alarm::run(core))?;
        if self.signal_scope == SignalScope::Monitor {
            self.spawn("kicks", Files::none(), |core| kick_service::run(core))?;
        }
        let outputs = Arc::clone(&self.outputs);
        self.spawn("doorbell", Files::none(), move |core| {
            doorbell::run(core, |output| outputs.push(output));
        })
    }

    /// Starts a thread under the policy of its name. Returns when the policy is in force.
    fn spawn(
        &mut self,
        name: &str,
        files: Files,
        body: impl FnOnce(&Arc<Core>) + Send + 'static,
    ) -> anyhow::Result<()> {
        let core = Arc::clone(&self.core);
        let fail = ends(&core);
        self.threads
            .start_confined(name, name, files, fail, move || body(&core))
    }

    /// Hands vCPU 0 to the first process, whose layer enters the kernel.
    pub fn start_kernel(&self) {
        let wake = &self.core.shared.proc(0).wake[0];
        wake.store(1, Ordering::SeqCst);
        sys::futex_wake(wake);
    }

    /// What keeps the signals of its processes inside the machine.
    pub fn signal_scope(&self) -> SignalScope {
        self.signal_scope
    }

    /// The console and the end.
    pub(crate) fn outputs(&self) -> &Arc<Outputs<Output>> {
        &self.outputs
    }

    /// The next output, if there is any.
    pub fn next(&self) -> Option<Output> {
        self.outputs.pop()
    }

    /// Becomes readable when there is output.
    pub fn bell(&self) -> BorrowedFd<'_> {
        self.outputs.bell()
    }

    /// Access to its vCPUs and memory.
    pub fn debug(&self) -> &Debug {
        &self.debug
    }

    /// Runs a debugger's thread, which `bell` wakes. The machine then stops at its first
    /// instruction.
    pub fn debug_with(
        &mut self,
        bell: OwnedFd,
        body: impl FnOnce(Debug) + Send + 'static,
    ) -> anyhow::Result<()> {
        self.core.wakeups.set_debugger(bell);
        self.debug.ask(0);
        let debug = self.debug.clone();
        self.spawn("gdb", Files::none(), move |_| body(debug))
    }

    /// Sets the exit code that a debugger gets.
    pub fn set_exit_code(&self, code: u8) {
        self.core.end.set_exit_code(code);
    }

    /// Sends all vCPUs a non-maskable interrupt. A kernel then reports what it was doing.
    pub fn nmi(&self) {
        kick::nmi(&self.core);
    }

    /// Read access to its statistics, which can be given to another thread.
    pub fn observer(&self) -> Observer {
        self.observer.clone()
    }

    /// What the layer has counted.
    pub fn counters(&self) -> Counters {
        vcpu_counters::read(&self.core.shared, self.core.vcpus)
    }
}

impl Drop for Vm {
    fn drop(&mut self) {
        // First, so that a thread that waits for a reader goes on.
        self.outputs.close();
        self.core.stop();
        // Threads sleep on words that the guest can write. Until the last of the machine's
        // processes has ended, the guest could undo the change that keeps a thread awake. So they
        // are woken repeatedly.
        let begun = Instant::now();
        let mut ended = None;
        let late = |names: &[&str]| {
            if !names.contains(&SUPERVISOR) {
                ended.get_or_insert_with(Instant::now);
            }
            // Guest code no longer runs when one of the two is true.
            ended.is_some_and(|ended| ended.elapsed() >= LEAVE) || begun.elapsed() >= PROCESSES_END
        };
        self.threads.end(late, || self.core.wake_all());
    }
}

/// Ends the machine, for a thread that has panicked.
fn ends(core: &Arc<Core>) -> impl Fn(String) + Send + 'static {
    let core = Arc::clone(core);
    move |why| core.fail(why)
}

/// The number of processes: at the start and at most.
fn pool(config: &Config<'_>) -> anyhow::Result<Pool> {
    let (least, vcpus) = (config.vcpus + 1, config.vcpus.into());
    let budget = Budget::new(config.memory, vcpus);
    let (tasks, memory) = (limits::tasks(), limits::memory());
    let most = |budget: Budget| limits::processes(vcpus, budget.each(vcpus), &tasks, &memory);
    let uncounted = budget.uncounted(limits::mappings().into());
    let (most, most_uncounted) = (most(budget), most(uncounted));
    if u64::from(least) > most.left {
        bail!(
            "{} and {} MiB of memory need {least} processes, this host allows {} (by {}): use \
             less memory or fewer virtual CPUs, or raise that limit",
            text::count(size(vcpus), "virtual CPU"),
            config.memory >> 20,
            most.left,
            most.source
        );
    }
    let most_allowed = u32::try_from(most.left)?;
    let limit = match config.spaces {
        Some(spaces) if spaces < least => {
            bail!("--spaces {spaces}: at least {least} are needed, one more than vCPUs")
        }
        Some(spaces) if spaces > most_allowed => {
            bail!(
                "--spaces {spaces}: this host allows {most_allowed} (by {})",
                most.source
            )
        }
        Some(spaces) => spaces,
        None => u32::try_from(budget.processes().min(most.left))?.max(least),
    };
    let first = least.max(FIRST_PROCESSES).min(limit);
    Ok(Pool {
        first,
        limit,
        limit_uncounted: u32::try_from(most_uncounted.left)?.clamp(first, limit),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_panics_ends_the_machine() {
        let core = Arc::new(Core::new(Shared::new(0).unwrap(), 1).unwrap());
        let mut threads = Threads::default();
        threads
            .start("disk", ends(&core), || panic!("planted"))
            .unwrap();
        threads.end(|_| false, || {});
        let why = core.end.failure().unwrap();
        assert_eq!(why, "the monitor's thread disk has panicked");
    }
}
