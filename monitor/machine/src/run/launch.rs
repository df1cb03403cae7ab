// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The machine that `run` starts: kernel, root file system, command line, devices.

use super::network::Told;
use super::resources::{self, Attached};
use crate::root;
use crate::spec::{Init, Spec};
use crate::stats::{Metrics, Stats};
use crate::store;
use anyhow::{Context, bail};
use paravane_agent_protocol::PORT;
use paravane_confine::{self as confine, Files};
use paravane_devices::Device;
use paravane_devices::balloon::Balloon;
use paravane_devices::rng::Rng;
use paravane_devices::vsock::{self, Hub, Vsock};
use paravane_gdb::{self as gdb, Address, Listener};
use paravane_hypervisor::GuestFile;
use paravane_hypervisor::process::{Config, Vm};
use paravane_kernel as kernel;
use paravane_user_io::files;
use rustix::event::{EventfdFlags, eventfd};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::Instant;

/// For every Linux guest: where its console is; and that it tells what it does when we send it a non-maskable interrupt.
const COMMAND_LINE: &str = "console=hvc0 unknown_nmi_panic";

/// The guest's address on its vsock, the first that one may have.
const CID: u32 = 3;

/// All that was read, before anything runs.
#[derive(Debug)]
pub struct Machine<'a> {
    spec: &'a Spec,
    kernel: GuestFile,
    kernel_file: KernelFile,
    initrd: Vec<u8>,
    command_line: String,
}

/// A machine that runs.
#[derive(Debug)]
pub struct Started {
    pub vm: Vm,
    /// When its kernel was entered: its deadlines count from then, not from what was prepared before.
    pub at: Instant,
    pub calls: Calls,
    pub attached: Attached,
    /// For its symbols.
    pub kernel: KernelFile,
    _metrics: Option<Metrics>,
}

/// The kernel's file, open: what is in it is guest memory's once the machine runs, and larger than all else that the monitor
/// needs. It is read again when somebody wants to know what is where.
#[derive(Debug)]
pub struct KernelFile(File);

impl KernelFile {
    /// What is in it; once.
    pub fn read(&self) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        // Of a thread that may read and do little else with files: not by what asks for the length first.
        (&self.0).take(u64::MAX).read_to_end(&mut bytes)?;
        Ok(bytes)
    }
}

impl<'a> Machine<'a> {
    /// Reads and checks what the options name.
    pub fn prepare(spec: &'a Spec, verbose: bool) -> anyhow::Result<Self> {
        let path = match &spec.kernel {
            Some(path) => path.clone(),
            None => kernel::locate_or_build()?.vmlinux,
        };
        let kernel = GuestFile::load(Some(&path))?;
        let kernel_file = File::open(&path).with_context(|| path.display().to_string())?;
        let initrd = match &spec.initrd {
            Some(path) => {
                let archive = files::read(path, "initrd")?;
                if !root::is_archive(&archive) {
                    bail!(
                        "initrd {}: no archive that the kernel can unpack: cpio (newc), also compressed, is",
                        path.display()
                    );
                }
                root::with_agent(archive)
            }
            None => root::built_in(&root::busybox::find()?),
        };
        Ok(Machine {
            spec,
            kernel,
            kernel_file: KernelFile(kernel_file),
            initrd,
            command_line: command_line(spec, verbose),
        })
    }

    /// Starts it. The calling thread is confined before anything of the guest's runs; `named` is
    /// what is known of the machine elsewhere, if it has a name.
    pub fn start(
        self,
        told: Told,
        named: Option<&store::Machine>,
        gdb: Option<&Address>,
    ) -> anyhow::Result<Started> {
        let hub = Hub::default();
        let calls = Calls(
            hub.listen(PORT)
                .context("cannot listen for the guest's agent")?,
        );
        let vsock = Vsock::new(CID, &hub).context("cannot make the socket device")?;
        let mut devices: Vec<Box<dyn Device>> = vec![
            Box::new(vsock),
            Box::new(Rng::default()),
            Box::new(Balloon::default()),
        ];
        let attached = Attached::new(self.spec, told, &mut devices)?;
        let config = Config {
            name: &self.kernel.name,
            kernel: &self.kernel.bytes,
            layer: paravane_blobs::PROCESS_LAYER,
            command_line: &self.command_line,
            initrd: &self.initrd,
            vcpus: self.spec.cpus,
            memory: u64::from(self.spec.memory_mib) << 20,
            spaces: self.spec.spaces,
            debuggable: self.spec.debuggable,
            disturb_clock: false,
        };
        let listener = gdb.map(Listener::open).transpose()?;
        let mut vm = Vm::prepare(&config, devices).context("cannot start the machine")?;
        if let Some((listener, address)) = listener {
            self.serve_gdb(&mut vm, listener, &address)?;
        }
        // All of it is in guest memory.
        drop((self.kernel, self.initrd));
        let metrics = match &self.spec.metrics {
            Some(path) => {
                let observer = vm.observer();
                Some(Metrics::start(path, move || Stats::of(&observer))?)
            }
            None => None,
        };
        if let Some(named) = named {
            named.set_signals(vm.reach().word())?;
        }
        confine::enter(
            "main",
            &Files::state(
                named.map(store::Machine::folder),
                self.spec.metrics.as_deref(),
            ),
        )?;
        vm.start_kernel();
        Ok(Started {
            vm,
            at: Instant::now(),
            calls,
            attached,
            kernel: self.kernel_file,
            _metrics: metrics,
        })
    }

    /// Starts the debugger's thread, and says how to reach it.
    fn serve_gdb(&self, vm: &mut Vm, listener: Listener, address: &Address) -> anyhow::Result<()> {
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let rings = bell.try_clone()?;
        let delta = vm.debug().delta;
        vm.debug_with(rings, move |debug| gdb::serve(debug, &listener, &bell))?;
        eprintln!(
            "paravane: waiting for gdb -ex 'symbol-file -o {delta:#x} {}' -ex 'target remote {address}'",
            self.kernel.name
        );
        Ok(())
    }
}

/// The agent's calls.
#[derive(Debug)]
pub struct Calls(vsock::Listener);

impl Calls {
    /// The next one, if there is one.
    pub fn next(&self) -> io::Result<Option<UnixStream>> {
        match self.0.accept(Some(Instant::now())) {
            Ok(stream) => Ok(Some(stream)),
            Err(error) if error.kind() == io::ErrorKind::TimedOut => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// For poll: readable while there is one.
    pub fn file(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// The word of the kernel's command line by which the agent leaves process 1 to the root's own init.
pub fn init_option(spec: &Spec) -> Option<&'static str> {
    // The built-in root has none.
    let own_root = spec.rootfs.is_some() || spec.initrd.is_some();
    match spec.init {
        Init::Systemd => Some("paravane.init=systemd"),
        Init::Auto if own_root && spec.command.is_empty() => Some("paravane.init=auto"),
        Init::Auto | Init::Agent => None,
    }
}

fn command_line(spec: &Spec, verbose: bool) -> String {
    let mut line = format!("{COMMAND_LINE} rdinit={}", root::AGENT);
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
