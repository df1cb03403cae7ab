// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where a debugger connects: a TCP port of the host's loopback, or a Unix socket.

use anyhow::{Context, bail};
use rustix::fs::Mode;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, socket_with};
use std::fmt;
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Debuggers that may wait to be accepted.
const BACKLOG: i32 = 16;

/// `HOST:PORT`, `:PORT`, or a path that contains a slash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// A TCP address.
    Port(SocketAddr),
    /// The path of a Unix socket.
    File(PathBuf),
}

impl Address {
    /// Parses an address. A program that can connect controls the whole machine, so an address
    /// other than the loopback needs `any`.
    pub fn parse(word: &str, any: bool) -> anyhow::Result<Self> {
        if word.contains('/') {
            return Ok(Address::File(std::path::absolute(word)?));
        }
        let full = match word.strip_prefix(':') {
            Some(port) => format!("127.0.0.1:{port}"),
            None => word.to_string(),
        };
        let mut found = full.to_socket_addrs().ok().with_context(|| {
            format!("--gdb {word}: HOST:PORT or the path of a socket is expected")
        })?;
        let address = found
            .next()
            .with_context(|| format!("--gdb {word}: no such host"))?;
        if !address.ip().is_loopback() && !any {
            bail!(
                "--gdb {word}: not the loopback; a program that can connect there controls the \
                 machine. --gdb-remote allows it"
            );
        }
        Ok(Address::Port(address))
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Port(address) if address.ip() == IpAddr::from([127, 0, 0, 1]) => {
                write!(f, ":{}", address.port())
            }
            Address::Port(address) => write!(f, "{address}"),
            Address::File(path) => write!(f, "{}", path.display()),
        }
    }
}

/// An open listening socket.
#[derive(Debug)]
pub enum Listener {
    /// On a TCP address.
    Port(TcpListener),
    /// On a Unix socket.
    File(UnixListener),
}

impl Listener {
    /// Starts to listen. Returns the address in use: port 0 is replaced by a free port.
    pub fn open(address: &Address) -> anyhow::Result<(Self, Address)> {
        match address {
            Address::Port(at) => {
                let listener = TcpListener::bind(at).with_context(|| format!("--gdb {address}"))?;
                let at = Address::Port(listener.local_addr()?);
                Ok((Listener::Port(listener), at))
            }
            Address::File(path) => {
                let listener = bind(path).with_context(|| format!("--gdb {address}"))?;
                Ok((Listener::File(listener), address.clone()))
            }
        }
    }

    /// Waits for the next connection and accepts it.
    pub(super) fn accept(&self) -> io::Result<Stream> {
        let kind = match self {
            Listener::Port(listener) => {
                let (stream, _) = listener.accept()?;
                stream.set_nodelay(true)?;
                Kind::Port(stream)
            }
            Listener::File(listener) => Kind::File(listener.accept()?.0),
        };
        Ok(Stream {
            kind: Arc::new(kind),
            pending: Vec::new(),
        })
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Listener::Port(listener) => listener.as_fd(),
            Listener::File(listener) => listener.as_fd(),
        }
    }
}

/// Binds a socket that only this user may connect to. Replaces a socket that no process listens on.
fn bind(path: &Path) -> anyhow::Result<UnixListener> {
    let old = std::fs::symlink_metadata(path).is_ok_and(|m| m.file_type().is_socket());
    if old {
        match UnixStream::connect(path) {
            Ok(_) => bail!("somebody listens there already"),
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                std::fs::remove_file(path)?;
            }
            Err(error) => return Err(error.into()),
        }
    }
    let address = SocketAddrUnix::new(path)?;
    let (family, kind) = (AddressFamily::UNIX, SocketType::STREAM);
    let socket = socket_with(family, kind, SocketFlags::CLOEXEC, None)?;
    // The name gets the mode of the socket, so no other user can connect before a change. Another
    // program may have replaced the name after it was made.
    rustix::fs::fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
    rustix::net::bind(&socket, &address)?;
    rustix::net::listen(&socket, BACKLOG)?;
    Ok(UnixListener::from(socket))
}

/// A connection. Output is buffered until a flush.
#[derive(Debug)]
pub struct Stream {
    kind: Arc<Kind>,
    pub pending: Vec<u8>,
}

#[derive(Debug)]
enum Kind {
    Port(TcpStream),
    File(UnixStream),
}

impl Stream {
    /// The connection, for the reading side.
    pub fn reader(&self) -> Stream {
        Stream {
            kind: Arc::clone(&self.kind),
            pending: Vec::new(),
        }
    }

    pub fn send(&mut self) -> io::Result<()> {
        let bytes = std::mem::take(&mut self.pending);
        match &*self.kind {
            Kind::Port(stream) => (&*stream).write_all(&bytes),
            Kind::File(stream) => (&*stream).write_all(&bytes),
        }
    }
}

impl Read for Stream {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        match &*self.kind {
            Kind::Port(stream) => (&*stream).read(bytes),
            Kind::File(stream) => (&*stream).read(bytes),
        }
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &*self.kind {
            Kind::Port(stream) => stream.as_fd(),
            Kind::File(stream) => stream.as_fd(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        let port = |word: &str| Address::parse(word, false).map(|a| a.to_string()).ok();
        assert_eq!(port(":1234").as_deref(), Some(":1234"));
        assert_eq!(port("127.0.0.1:0").as_deref(), Some(":0"));
        assert_eq!(port("[::1]:7").as_deref(), Some("[::1]:7"));
        assert_eq!(port("/tmp/x").as_deref(), Some("/tmp/x"));
        for bad in [
            "",
            "x",
            ":",
            ":x",
            "0.0.0.0:1",
            "192.0.2.1:1",
            "[::]:1",
            ":99999",
        ] {
            assert!(port(bad).is_none(), "{bad}");
        }
        assert!(Address::parse("192.0.2.1:1", true).is_ok());
    }

    #[test]
    fn a_socket_without_a_listener_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let address = Address::File(folder.path().join("gdb"));
        let (first, _) = Listener::open(&address).unwrap();
        assert!(Listener::open(&address).is_err());
        drop(first);
        let (second, _) = Listener::open(&address).unwrap();
        let error = format!("{:#}", Listener::open(&address).unwrap_err());
        assert!(error.contains("somebody listens there already"), "{error}");
        drop(second);
        // A socket of packets, which another process may serve: a connection fails in another way.
        std::fs::remove_file(folder.path().join("gdb")).unwrap();
        let _other = std::os::unix::net::UnixDatagram::bind(folder.path().join("gdb")).unwrap();
        assert!(Listener::open(&address).is_err() && folder.path().join("gdb").exists());
    }

    /// This holds from the beginning: the socket gets its mode with its name, whatever the umask
    /// is.
    #[test]
    fn only_this_user_may_connect() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("gdb");
        let before = rustix::process::umask(Mode::empty());
        let listener = bind(&path);
        rustix::process::umask(before);
        let _listener = listener.unwrap();
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o7777, 0o600);
        UnixStream::connect(&path).unwrap();
    }
}
