// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Creates the machine that `run` starts: kernel, root file system, command line, devices.

use super::choice::Choice;
use super::descriptors::{self, Shares};
use super::network::NetworkReport;
use super::resources::{self, Resources};
use crate::heuristic::Heuristic;
use crate::root::{self, builtin::ListFile, modules::Module};
use crate::spec::{Init, RomLayer, Spec};
use crate::stats::{Metrics, Stats};
use crate::store;
use crate::vm::Vm;
use anyhow::{Context, bail};
use paravane_agent_protocol::PORT;
use paravane_confine::{self as confine, Files, OnlyOwn};
use paravane_devices::Model;
use paravane_devices::balloon::Balloon;
use paravane_devices::rng::Rng;
use paravane_devices::vsock::{self, Hub, Vsock};
use paravane_gdb::{self as gdb, Address, Listener};
use paravane_hypervisor::{KernelFile, Layer};
use paravane_hypervisor::{kvm, process};
use paravane_kernel as kernel;
use paravane_user_io::files;
use paravane_user_io::stderr::say;
use paravane_user_io::worker::{Report, Worker};
use paravane_vmlinux::elf;
use rustix::event::{EventfdFlags, eventfd};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::mpsc::{Sender, channel};
use std::time::Instant;

/// For every Linux guest: it panics with a report on a non-maskable interrupt, and has no interface
/// dummy0 from the start, as with systemd's options of modules.
const COMMAND_LINE: &str = "unknown_nmi_panic dummy.numdummies=0";
/// The console of a machine of processes: the layer's.
const PROCESS_CONSOLE: &str = "console=hvc0";
/// The console of a machine on KVM: a serial line. There is no PCI, which would be looked for, and
/// a panic is a restart, which ends the machine.
const KVM_CONSOLE: &str = "console=ttyS0 pci=off panic=-1";

/// In the release of VMI-Linux.
const VMI_LINUX: &str = "-vmi";

/// Before the reason of a failure.
const START: &str = "cannot start the machine";

/// The guest's context id on its vsock, the first that is not reserved.
const CID: u32 = 3;

/// The input of a machine, read and checked before anything runs.
#[derive(Debug)]
pub struct Machine {
    spec: Spec,
    choice: Choice,
    kernel: KernelFile,
    symbols: SymbolFile,
    initrd: Vec<u8>,
    command_line: String,
}

/// The thread that creates a machine. It stays until the machine's end, because the host kernel
/// kills passt when the thread that started it ends.
const STARTER: &str = "starter";

/// A machine that is being created.
pub type Starting = Worker<anyhow::Result<Made>>;

/// A machine that is complete. All of its threads are confined, except for the main thread, and no
/// guest code has run.
#[derive(Debug)]
pub struct Made {
    vm: Vm,
    layer: Layer,
    choice: Choice,
    calls: Calls,
    resources: Resources,
    kernel: SymbolFile,
    metrics: Option<Metrics>,
    /// The files that the main thread may open while the guest runs.
    files: Files,
    /// Set if other programs of the user need not look at this process.
    hidden: Option<OnlyOwn>,
    /// The starter thread ends when this is dropped.
    starter: Sender<()>,
}

/// A machine that runs.
#[derive(Debug)]
pub struct Started {
    pub vm: Vm,
    /// The layer that it has.
    pub layer: Layer,
    /// What runs it, and why.
    pub choice: Choice,
    pub calls: Calls,
    pub resources: Resources,
    /// For the symbols in a crash report.
    pub kernel: SymbolFile,
    _metrics: Option<Metrics>,
    /// Dropped last: passt has ended by then.
    _starter: Sender<()>,
}

/// The kernel's open file. Its contents are in guest memory once the machine runs, and larger than
/// everything else that the monitor needs. A crash report reads it again for its symbols.
#[derive(Debug)]
pub struct SymbolFile {
    file: File,
    build_id: Option<String>,
}

impl AsFd for SymbolFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl SymbolFile {
    /// The build ID in the contents when the machine was created.
    pub fn build_id(&self) -> Option<&str> {
        self.build_id.as_deref()
    }

    /// Reads the contents, once.
    pub fn read(&self) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        // The calling thread's policy admits few calls on files. File::read_to_end would also ask
        // for the length.
        (&self.file).take(u64::MAX).read_to_end(&mut bytes)?;
        Ok(bytes)
    }
}

impl Machine {
    /// Reads and checks the files that the options name. `kernel`: that of --kernel, which was
    /// looked at to make the choice.
    pub fn prepare(
        spec: &Spec,
        kernel: Option<KernelFile>,
        choice: Choice,
        verbose: bool,
    ) -> anyhow::Result<Self> {
        let path = match &spec.kernel {
            Some(path) => path.clone(),
            None => kernel::locate_or_build()?.vmlinux,
        };
        let kernel = match kernel {
            Some(kernel) => kernel,
            None => KernelFile::load(Some(&path))?,
        };
        let file = kernel.file().map(File::try_clone).transpose()?;
        let symbols = SymbolFile {
            file: file.context("a kernel without a file")?,
            // A damaged file is reported by its first user, the hypervisor.
            build_id: elf::build_id_of(&kernel.bytes).ok().flatten(),
        };
        if !choice.is_kvm() {
            kernel.elf()?;
        }
        let modules = modules(&kernel, &path)?;
        let lists = lists(&kernel, &path)?;
        warn_of_a_bus(spec, &kernel);
        warn_of_memory(spec, process::limits::memory_of_groups());
        let initrd = match &spec.initrd {
            Some(path) => {
                let archive = files::read(path, "initrd")?;
                if !root::is_archive(&archive) {
                    bail!(
                        "initrd {}: no archive that the kernel can unpack: a cpio archive (newc), \
                         optionally compressed, is needed",
                        path.display()
                    );
                }
                root::with_agent(archive)?
            }
            None => root::built_in(&root::busybox::find()?)?,
        };
        let initrd = if modules.is_empty() {
            initrd
        } else {
            root::with_modules(initrd, &modules)?
        };
        let initrd = if lists.is_empty() {
            initrd
        } else {
            root::with_lists(initrd, &lists)?
        };
        Ok(Machine {
            spec: spec.clone(),
            kernel,
            symbols,
            initrd,
            command_line: command_line(spec, &choice, verbose),
            choice,
        })
    }

    /// Begins to create the machine on a thread of its own: the host can take long for files,
    /// processes and namespaces, and most of that cannot be interrupted. `named` is the machine's
    /// entry in the store, if it has a name.
    pub fn begin(
        self,
        network: NetworkReport,
        named: Option<&store::Machine>,
        gdb: Option<&Address>,
    ) -> anyhow::Result<Starting> {
        let only_own = confine::only_own_processes()?;
        let (named, gdb) = (named.cloned(), gdb.cloned());
        let work = move |report: Report<anyhow::Result<Made>>| {
            let (starter, end) = channel();
            let made = self.make(network, named.as_ref(), gdb.as_ref(), starter, only_own);
            report.give(made.and_then(|made| {
                confine::enter(STARTER, &Files::none())?;
                Ok(made)
            }));
            // Returns when the machine has ended.
            let _ = end.recv();
        };
        Worker::start(STARTER, work).context("cannot start a thread")
    }

    fn make(
        self,
        report: NetworkReport,
        named: Option<&store::Machine>,
        gdb: Option<&Address>,
        starter: Sender<()>,
        only_own: OnlyOwn,
    ) -> anyhow::Result<Made> {
        let hub = Hub::default();
        let calls = Calls(
            hub.listen(PORT)
                .context("cannot listen for the guest's agent")?,
        );
        let most = Shares::of(descriptors::limit()).sockets;
        let vsock = Vsock::new(CID, &hub, most).context("cannot make the socket device")?;
        let mut devices = vec![
            Model::virtio(vsock),
            Model::virtio(Rng::default()),
            Model::virtio(Balloon::default()),
        ];
        let resources = Resources::new(&self.spec, report, &mut devices)?;
        let (vm, layer) = (self.vm(devices, gdb)?, self.layer());
        // Guest memory has a copy of both.
        drop((self.kernel, self.initrd));
        let metrics = match &self.spec.metrics {
            Some(path) => {
                let observer = vm.observer();
                let choice = self.choice.clone();
                Some(Metrics::start(path, move || Stats::of(&observer, &choice))?)
            }
            None => None,
        };
        if let Some(named) = named {
            named.set_hypervisor(&self.choice)?;
            if let Some(word) = vm.signals() {
                named.set_signals(word)?;
            }
        }
        let folder = named.map(store::Machine::folder);
        Ok(Made {
            vm,
            layer,
            choice: self.choice,
            calls,
            resources,
            kernel: self.symbols,
            metrics,
            files: Files::state(folder, self.spec.sockets()),
            hidden: (!self.spec.debuggable).then_some(only_own),
            starter,
        })
    }

    /// The layer that the guest gets, if its kernel looks for one.
    fn layer(&self) -> Layer {
        match (self.choice.is_kvm(), self.spec.stats) {
            (true, true) => Layer::NativeStats,
            (true, false) => self.spec.layer.map_or(Layer::Kvm, RomLayer::layer),
            (false, true) => Layer::ProcessStats,
            (false, false) => Layer::Process,
        }
    }

    fn vm(&self, devices: Vec<Model>, gdb: Option<&Address>) -> anyhow::Result<Vm> {
        let (vcpus, memory) = (self.spec.cpus, u64::from(self.spec.memory_mib) << 20);
        if self.choice.is_kvm() {
            let config = kvm::Config {
                name: &self.kernel.name,
                kernel: &self.kernel.bytes,
                layer: self.layer().rom(),
                command_line: &self.command_line,
                initrd: &self.initrd,
                vcpus,
                memory,
                tests: false,
                large_pages: self.spec.uses(Heuristic::LargePages),
                emulated: self.choice.emulated,
            };
            let listener = gdb.map(Listener::open).transpose()?;
            let mut vm = kvm::Vm::prepare(&config, devices).context(START)?;
            if let Some((listener, address)) = listener {
                let (bell, rings) = bells()?;
                vm.debug_with(rings, move |debug| {
                    gdb::serve(Box::new(debug), &listener, &bell);
                })?;
                self.say_gdb(0, &address)?;
            }
            return Ok(Vm::Kvm(vm));
        }
        let layer = self.layer().program();
        #[cfg(feature = "test-hooks")]
        let layer = crate::planted::layer().or(layer);
        let config = process::Config {
            name: &self.kernel.name,
            kernel: &self.kernel.bytes,
            layer: layer.context(START)?,
            command_line: &self.command_line,
            initrd: &self.initrd,
            vcpus,
            memory,
            spaces: self.spec.spaces,
            debuggable: self.spec.debuggable,
            heuristics: self.spec.heuristics(),
        };
        let listener = gdb.map(Listener::open).transpose()?;
        let mut vm = process::Vm::prepare(&config, devices).context(START)?;
        if let Some((listener, address)) = listener {
            self.serve_gdb(&mut vm, listener, &address)?;
        }
        Ok(Vm::Process(Box::new(vm)))
    }

    /// Starts the debugger's thread, and prints how to connect to it.
    fn serve_gdb(
        &self,
        vm: &mut process::Vm,
        listener: Listener,
        address: &Address,
    ) -> anyhow::Result<()> {
        let (bell, rings) = bells()?;
        let delta = vm.debug().delta;
        vm.debug_with(rings, move |debug| {
            gdb::serve(Box::new(debug), &listener, &bell);
        })?;
        self.say_gdb(delta, address)
    }

    /// Prints how to connect a debugger. `delta`: load address minus link address.
    fn say_gdb(&self, delta: u64, address: &Address) -> anyhow::Result<()> {
        say(&format!(
            "paravane: waiting for gdb -ex 'symbol-file -o {delta:#x} {}' \
             -ex 'target remote {address}'\n",
            self.kernel.name
        ));
        Ok(())
    }
}

/// An event counter, and its other end.
fn bells() -> anyhow::Result<(OwnedFd, OwnedFd)> {
    let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
    let rings = bell.try_clone()?;
    Ok((bell, rings))
}

impl Made {
    /// Confines the calling thread, and starts the guest's kernel.
    pub fn start(self) -> anyhow::Result<Started> {
        self.hidden.map_or(Ok(()), OnlyOwn::hide)?;
        confine::enter("main", &self.files)?;
        self.vm.start_kernel();
        Ok(Started {
            vm: self.vm,
            layer: self.layer,
            choice: self.choice,
            calls: self.calls,
            resources: self.resources,
            kernel: self.kernel,
            _metrics: self.metrics,
            _starter: self.starter,
        })
    }
}

/// The modules that a distribution's kernel needs in a machine.
fn modules(kernel: &KernelFile, path: &Path) -> anyhow::Result<Vec<Module>> {
    let Some(release) = kernel.release() else {
        return Ok(Vec::new());
    };
    if let Some(folder) = root::modules::folder(path, &release).filter(|_| !release.is_empty()) {
        return root::modules::read(&folder);
    }
    say(&format!(
        "paravane: no modules of Linux {release} beside {}: its virtio drivers must be built in\n",
        kernel.name
    ));
    Ok(Vec::new())
}

/// The lists of the drivers that VMI-Linux has built in. Other kernels' are in their own packages.
fn lists(kernel: &KernelFile, path: &Path) -> anyhow::Result<Vec<ListFile>> {
    match kernel.release() {
        None => root::builtin::read(path),
        Some(_) => Ok(Vec::new()),
    }
}

/// The drivers of a virtual bus are VMI-Linux's. Says so where another kernel gets such devices.
fn warn_of_a_bus(spec: &Spec, kernel: &KernelFile) {
    let Some(release) = kernel.release() else {
        return;
    };
    if let Some(option) = spec.on_bus().filter(|_| !release.contains(VMI_LINUX)) {
        say(&format!(
            "paravane: {option} needs a driver that Linux {release} does not have: VMI-Linux \
             (paravane kernel build) has it\n"
        ));
    }
}

/// Says so where the guest's memory exceeds the control group's, such as a container's. The host
/// kills the monitor or a process of the machine then, and gives the user no reason.
fn warn_of_memory(spec: &Spec, most: Option<u64>) {
    let memory = u64::from(spec.memory_mib);
    if let Some(most) = most.map(|bytes| bytes >> 20).filter(|&most| memory >= most) {
        say(&format!(
            "paravane: --memory {memory}M, and the control group has {most} MiB: the host ends the \
             machine when it uses them; give less --memory, or raise the limit (memory.max)\n"
        ));
    }
}

/// The connections that the agent makes.
#[derive(Debug)]
pub struct Calls(vsock::Listener);

impl Calls {
    /// The next connection, if there is one.
    pub fn next(&self) -> io::Result<Option<UnixStream>> {
        match self.0.accept(Some(Instant::now())) {
            Ok(stream) => Ok(Some(stream)),
            Err(error) if error.kind() == io::ErrorKind::TimedOut => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// For poll: readable while there is a connection to take.
    pub fn file(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// The word of the kernel's command line that has the agent execute the root's own init as process
/// 1.
pub fn init_option(spec: &Spec) -> Option<&'static str> {
    // The built-in root has none.
    let own_root = spec.rootfs.is_some() || spec.initrd.is_some();
    match spec.init {
        Init::Systemd => Some("paravane.init=systemd"),
        Init::Auto if own_root && spec.command.is_empty() => Some("paravane.init=auto"),
        Init::Auto | Init::Agent => None,
    }
}

fn command_line(spec: &Spec, choice: &Choice, verbose: bool) -> String {
    let console = if choice.is_kvm() {
        KVM_CONSOLE
    } else {
        PROCESS_CONSOLE
    };
    let mut line = format!("{console} {COMMAND_LINE} rdinit={}", root::AGENT);
    if !verbose {
        line.push_str(" quiet");
    }
    for word in resources::root_option(spec)
        .into_iter()
        .chain(init_option(spec).map(str::to_string))
    {
        line.push(' ');
        line.push_str(&word);
    }
    for more in &spec.append {
        line.push(' ');
        line.push_str(more);
    }
    line
}
