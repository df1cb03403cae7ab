// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `paravane boot`: boots a kernel on the process hypervisor with its console on stdout, for
//! developers of either.

use crate::arguments::Boot;
use anyhow::{Context, bail};
use paravane_devices::Model;
use paravane_devices::blk::{Block, Disk, Format, Mode};
use paravane_devices::console::Console;
use paravane_devices::fs::{Access, Fs};
use paravane_devices::rng::Rng;
use paravane_devices::vsock::{CONNECTIONS, Hub, Vsock};
use paravane_hypervisor::process::{Config, End, Heuristics, Output, Vm};
use paravane_user_io::outcome::Outcome;
use paravane_user_io::outlet::{self, Bounded};
use paravane_user_io::signals::Signals;
use paravane_user_io::worker::{self, Limit};
use rustix::event::{PollFd, PollFlags, Timespec};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

/// Runs the command.
pub fn run(args: &Boot) -> anyhow::Result<Outcome> {
    let read =
        |path: &std::path::Path| std::fs::read(path).with_context(|| path.display().to_string());
    let path = match &args.kernel {
        Some(path) => path.clone(),
        None => paravane_kernel::locate_or_build()?.vmlinux,
    };
    let kernel = read(&path)?;
    let initrd = args
        .initrd
        .as_deref()
        .map(read)
        .transpose()?
        .unwrap_or_default();
    let signals = Signals::install().context("cannot handle signals")?;
    let deadline = Instant::now() + Duration::from_secs(args.timeout);
    let limit = Limit {
        signals: Some(&signals),
        deadline,
    };
    let args = args.clone();
    let timeout = args.timeout;
    let vm = worker::within(&limit, "starter", move || {
        let config = Config {
            name: &path.display().to_string(),
            kernel: &kernel,
            layer: paravane_blobs::PROCESS_LAYER,
            command_line: &args.append,
            initrd: &initrd,
            vcpus: args.cpus,
            memory: u64::from(args.memory) << 20,
            spaces: args.spaces,
            debuggable: args.debuggable,
            heuristics: Heuristics::default(),
        };
        Vm::start_with(&config, devices(&args)?)
    })?;
    let mut out = Bounded(limit);
    loop {
        match vm.next() {
            Some(Output::Console(bytes)) => {
                out.write_all(&bytes).map_err(outlet::error)?;
                continue;
            }
            Some(Output::End(End::Shutdown(code))) => return Ok(Outcome::Guest(code)),
            Some(Output::End(End::Reboot(_))) => bail!("the machine was reset"),
            Some(Output::End(End::Failed(why))) => bail!("{why}; the virtual machine was ended"),
            None => {}
        }
        if let Some(signal) = signals.pending() {
            return Ok(Outcome::Interrupted(signal));
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            bail!("the machine had not ended after {timeout} s");
        }
        let mut files = [
            PollFd::from_borrowed_fd(vm.bell(), PollFlags::IN),
            PollFd::from_borrowed_fd(signals.wake(), PollFlags::IN),
        ];
        // The loop checks everything again after any end of the wait.
        let _ = rustix::event::poll(&mut files, Timespec::try_from(left).ok().as_ref());
    }
}

/// The guest's address on its socket device.
const CID: u32 = 3;
/// The time in which the guest must answer.
const ANSWER_TIME: Duration = Duration::from_secs(10);

fn devices(args: &Boot) -> anyhow::Result<Vec<Model>> {
    let mut devices = vec![Model::virtio(Rng::default())];
    for (index, disk) in args.disk.iter().enumerate() {
        let (path, format) = match disk.rsplit_once(':') {
            Some((path, "raw")) => (path, Format::Raw),
            Some((path, "qcow2")) => (path, Format::Qcow2),
            _ => (disk.as_str(), Format::Named),
        };
        let (path, mode) = match path.rsplit_once(':') {
            Some((path, "ro")) => (path, Mode::ReadOnly),
            Some((path, "snapshot")) => (path, Mode::Snapshot),
            _ => (path, Mode::Write),
        };
        let disk = Disk::open_as(Path::new(path), format, mode).context("--disk")?;
        devices.push(Model::virtio(Block::on(disk, &format!("disk{index}"))));
    }
    for share in &args.share {
        let Some((path, tag)) = share.rsplit_once(':') else {
            bail!("--share {share}: it must be DIR:TAG");
        };
        devices.push(Model::virtio(
            Fs::new(Path::new(path), tag, Access::Write).context("--share")?,
        ));
    }
    if args.echo {
        let (here, there) = UnixStream::pair()?;
        devices.push(Model::virtio(Console::new(there)?));
        thread::spawn(move || echo(here));
        let hub = Hub::default();
        devices.push(Model::virtio(Vsock::new(CID, &hub, CONNECTIONS)?));
        let (called, calling) = (hub.listen(7)?, hub.listen(8)?);
        thread::spawn(move || {
            while let Ok(stream) = called.accept(None) {
                thread::spawn(move || echo(stream));
            }
        });
        thread::spawn(move || {
            while let Ok(_stream) = calling.accept(None) {
                match hub.connect(1008, ANSWER_TIME) {
                    Ok(stream) => drop(thread::spawn(move || echo(stream))),
                    Err(error) => tracing::warn!("cannot connect to the guest: {error}"),
                }
            }
        });
    }
    Ok(devices)
}

/// Echoes input until its end.
fn echo(mut stream: UnixStream) {
    let mut bytes = [0; 16384];
    while let Ok(count) = stream.read(&mut bytes) {
        if count == 0 || stream.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
}
