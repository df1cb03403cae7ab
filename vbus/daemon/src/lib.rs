// SPDX-License-Identifier: Apache-2.0 OR MIT
//! vbusd: the virtual bus of a user's processes.
//!
//! It owns the buses and devices of crate `paravane-vbus`, and is the connector of host processes:
//! it learns from the kernel who a client is, maps the client's memory, and carries notifications.
//! It has ordinary rights and serves everything on one thread; a second one only closes files that
//! clients should not have sent. Both confine themselves before the first connection is taken
//! (`monitor/policies/monitor.json`, threads `vbusd` and `vbusd-closer`). It may be killed at any
//! moment: what it has acknowledged is in its state file or in the clients' memory, and another one
//! continues.

#![deny(unsafe_code)]

mod administer;
mod bell;
mod closer;
#[expect(unsafe_code, reason = "maps the memory of clients")]
mod memory;
#[expect(unsafe_code, reason = "asks the kernel who a peer is")]
mod peer;
#[expect(unsafe_code, reason = "takes packets with every file beside them")]
mod receive;
mod serve;
mod server;
mod store;

use anyhow::{Context, bail};
use paravane_confine::Files;
use rustix::fs::{CWD, Mode, chmodat};
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with,
};
use rustix::process::{Resource, getrlimit, setrlimit};
use std::convert::Infallible;
use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use store::Store;

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
    let folder = &options.folder;
    let context = || format!("cannot make the folder {}", folder.display());
    let mut maker = fs::DirBuilder::new();
    maker.recursive(true).mode(0o700);
    maker.create(folder).with_context(context)?;
    let store = Store::open(folder)?;
    let vbus = store.load()?;
    let path = match &options.socket {
        Some(path) => path.clone(),
        None => folder.join(paravane_vbus_protocol::SOCKET),
    };
    let context = || format!("cannot make the socket {}", path.display());
    match fs::symlink_metadata(&path) {
        Ok(found) if is_socket(&found) => fs::remove_file(&path).with_context(context)?,
        Ok(_) => bail!("{} exists and is no socket: name another", path.display()),
        Err(_) => {}
    }
    let listener = socket_with(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
        None,
    )?;
    let address = SocketAddrUnix::new(&path).with_context(context)?;
    bind(&listener, &address).with_context(context)?;
    // Who may do what is decided by credentials, and who reaches the socket by its folder.
    chmodat(
        CWD,
        &path,
        Mode::from_raw_mode(0o666),
        rustix::fs::AtFlags::empty(),
    )
    .with_context(context)?;
    listen(&listener, 64).with_context(context)?;
    let closer = closer::Closer::start()?;
    let most = serve::most_connections(raise_files()?);
    let server = server::Server::new(listener, vbus, store, closer, most)?;
    paravane_confine::enter("vbusd", &Files::state(Some(folder), None))?;
    server.serve()
}

/// Allows as many descriptors as the host does, and returns how many.
fn raise_files() -> anyhow::Result<usize> {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).context("cannot raise the limit of open files")?;
    let files = limit.current.and_then(|files| usize::try_from(files).ok());
    Ok(files.unwrap_or(usize::MAX))
}

fn is_socket(metadata: &fs::Metadata) -> bool {
    use std::os::unix::fs::FileTypeExt;
    metadata.file_type().is_socket()
}
