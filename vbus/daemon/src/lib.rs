// SPDX-License-Identifier: Apache-2.0 OR MIT
//! vbusd: the virtual bus of a user's processes.
//!
//! It owns the buses and devices of crate `paravane-vbus`, and is the connector of host processes:
//! it learns a client's user from the kernel, maps the client's memory, and carries notifications.
//! It has ordinary rights. One thread serves everything, with these exceptions: a second one closes
//! files that clients should not have sent, a third reads and writes the files of disks, and four
//! more have the cards that lead out of a bus, to taps and to the user-mode network. All threads
//! confine themselves before the first connection is taken (`monitor/policies/monitor.json`,
//! threads `vbusd` and `vbusd-...`). vbusd may be killed at any moment: all that it has
//! acknowledged is in its state file, its disks or the clients' memory, and another vbusd
//! continues. At its start, vbusd creates a helper process, which starts passt when a device asks
//! for it.

#![deny(unsafe_code)]

mod administer;
mod again;
mod bell;
mod card;
mod closer;
mod confined;
mod disk;
#[cfg(test)]
mod fuzz;
#[expect(unsafe_code, reason = "replaces pages that the host cannot give")]
mod guard;
mod later;
#[expect(unsafe_code, reason = "maps the memory of clients")]
mod memory;
#[expect(unsafe_code, reason = "asks the kernel who a peer is")]
mod peer;
#[expect(unsafe_code, reason = "takes packets with every file beside them")]
mod receive;
mod serve;
mod server;
#[expect(unsafe_code, reason = "ignores a signal")]
mod signals;
mod store;

use anyhow::{Context, bail};
use paravane_confine::{Files, pass_files};
use paravane_net::passt::Starter;
use rustix::fs::Mode;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen, socket_with,
};
use rustix::process::{Resource, geteuid, getrlimit, setrlimit, umask};
use std::convert::Infallible;
use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use store::Store;

pub use signals::ignore_file_limits;

/// What a vbusd needs to know.
#[derive(Clone, Debug)]
pub struct Options {
    /// Folder of its state; it is created if needed, for this user alone.
    pub folder: PathBuf,
    /// Its socket, if it is not in that folder.
    pub socket: Option<PathBuf>,
}

/// Runs until the process is killed.
///
/// # Errors
/// The state is damaged or in use, the socket cannot be made, or the host refuses something that
/// vbusd cannot do without.
pub fn run(options: &Options) -> anyhow::Result<Infallible> {
    ignore_file_limits();
    guard::install();
    // Before there are threads, and anything that it should not have.
    let starter = Starter::fork()?;
    let folder = &options.folder;
    let context = || format!("cannot make the folder {}", folder.display());
    let mut maker = fs::DirBuilder::new();
    maker.recursive(true).mode(0o700);
    maker.create(folder).with_context(context)?;
    check_folder(folder)?;
    let store = Store::open(folder)?;
    let files = raise_files()?;
    let pool = disk::Pool::start()?;
    let cards = card::Cards::start(files, starter)?;
    let vbus = store.load(&pool, &cards)?;
    let path = match &options.socket {
        Some(path) => path.clone(),
        None => folder.join(paravane_vbus_protocol::SOCKET),
    };
    let context = || format!("cannot make the socket {}", path.display());
    let address = SocketAddrUnix::new(&path).with_context(context)?;
    make_room(&path, &address)?;
    let listener = socket()?;
    // Files come from peers that were admitted, and not before.
    let no_files = pass_files(&listener, false).context("cannot prepare the socket")?;
    // Credentials decide what a client may do. The folder's mode decides which users reach the
    // socket. The mode is not changed afterwards: another process may have replaced the name by a
    // link then.
    let before = umask(Mode::from_raw_mode(0o111));
    let bound = bind(&listener, &address);
    umask(before);
    bound.with_context(context)?;
    listen(&listener, 64).with_context(context)?;
    let closer = closer::Closer::start()?;
    let most = serve::most_connections(files.saturating_sub(cards.files()));
    let listener = server::Listener {
        socket: listener,
        no_files,
    };
    let server = server::Server::new(listener, vbus, store, closer, (pool, cards), most)?;
    paravane_confine::enter("vbusd", &Files::state(Some(folder), None))?;
    server.serve()
}

/// Checks that no other user can replace what is in the folder.
fn check_folder(folder: &Path) -> anyhow::Result<()> {
    let found = fs::metadata(folder).with_context(|| folder.display().to_string())?;
    let me = geteuid().as_raw();
    if found.uid() != me || found.mode() & 0o022 != 0 {
        bail!(
            "{} belongs to another user, or others may write to it: name another folder",
            folder.display()
        );
    }
    Ok(())
}

fn socket() -> anyhow::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None);
    socket.context("cannot make a socket")
}

/// Removes a socket on which no process listens any more.
fn make_room(path: &Path, address: &SocketAddrUnix) -> anyhow::Result<()> {
    match fs::symlink_metadata(path) {
        Ok(found) if !found.file_type().is_socket() => {
            bail!("{} exists and is no socket: name another", path.display())
        }
        Ok(_) => {}
        Err(_) => return Ok(()),
    }
    if connect(&socket()?, address) != Err(Errno::CONNREFUSED) {
        bail!(
            "another program uses the socket {}: name another",
            path.display()
        );
    }
    fs::remove_file(path).with_context(|| format!("cannot replace {}", path.display()))
}

/// Allows as many descriptors as the host does, and returns how many.
fn raise_files() -> anyhow::Result<usize> {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).context("cannot raise the limit of open files")?;
    let files = limit.current.and_then(|files| usize::try_from(files).ok());
    Ok(files.unwrap_or(usize::MAX))
}
