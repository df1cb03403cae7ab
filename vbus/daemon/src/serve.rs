// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The clients' requests.

use crate::bell::Bell;
use crate::memory::Memory;
use crate::peer::Peer;
use paravane_vbus::{Broken, ConnectionId, Endpoint, Error, Kind, MemberId, Outside, Vbus, limits};
use paravane_vbus_protocol::{Reply, Request, Shared};
use rustix::event::{EventfdFlags, epoll, eventfd};
use rustix::io::Errno;
use rustix::net::{AddressFamily, Shutdown, SocketFlags, SocketType, shutdown, socketpair};
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::rc::Rc;

/// Most memory of all clients together. Their pages may count as vbusd's own.
const MEMORY: u64 = 4 << 30;

/// What vbusd has of a connection.
#[derive(Debug)]
pub struct Link {
    memory: Rc<Memory>,
    bell: Rc<Bell>,
    /// The eventfd on which the client notifies the device. Never read: it is watched for edges, so
    /// the client cannot make a read of it block.
    kick: OwnedFd,
}

/// All connections.
pub type Links = BTreeMap<ConnectionId, Link>;

/// What a request leads to: a reply with files.
pub type Answer = Result<(Reply, Vec<OwnedFd>), Error>;

fn host(what: &str) -> impl Fn(Errno) -> Error {
    move |error| Error::new(Kind::Host, format!("{what}: {error}"))
}

/// Answers a request of a client. `poll` gets the eventfds of new connections, with `token` of
/// their numbers.
pub fn answer(
    vbus: &mut Vbus,
    links: &mut Links,
    peer: &mut Peer,
    request: Request,
    files: Vec<OwnedFd>,
    poll: &OwnedFd,
    token: fn(ConnectionId) -> u64,
) -> Answer {
    if let Request::Join { bus } = &request {
        if peer.member.is_some() {
            return Err(Error::new(
                Kind::Exists,
                "the client has joined a bus already",
            ));
        }
        let member = vbus.join(bus, peer.who.clone(), peer.administrator)?;
        peer.member = Some(member);
        return Ok((Reply::Done, Vec::new()));
    }
    let member = peer.member.ok_or_else(|| {
        Error::new(
            Kind::Denied,
            "only an administrator, or a client of a bus, may do that",
        )
    })?;
    match request {
        Request::Interfaces => done(Reply::Interfaces(vbus.interfaces(member)?)),
        Request::Open { interface, version } => {
            let [memory] = <[OwnedFd; 1]>::try_from(files)
                .map_err(|_| Error::new(Kind::Invalid, "a connection needs one memfd"))?;
            let id = vbus.open(member, interface, version)?;
            match link(links, id, &memory, poll, token(id)) {
                Ok(files) => Ok((Reply::Opened(id), files)),
                Err(error) => {
                    vbus.close(member, id)?;
                    Err(error)
                }
            }
        }
        Request::Share { connection, shared } => {
            share(vbus, links, member, connection, shared)?;
            done(Reply::Done)
        }
        Request::Call {
            connection,
            call,
            argument,
        } => done(Reply::Bytes(
            vbus.call(member, connection, call, &argument)?,
        )),
        Request::Close { connection } => {
            vbus.close(member, connection)?;
            done(Reply::Done)
        }
        _ => Err(Error::new(
            Kind::Denied,
            "only an administrator may do that",
        )),
    }
}

fn done(reply: Reply) -> Answer {
    Ok((reply, Vec::new()))
}

/// Maps a client's memory, and makes the files of a connection. Returns the client's.
fn link(
    links: &mut Links,
    id: ConnectionId,
    memory: &OwnedFd,
    poll: &OwnedFd,
    token: u64,
) -> Result<Vec<OwnedFd>, Error> {
    let memory = Memory::map(memory)?;
    let mapped: u64 = links.values().map(|link| link.memory.len()).sum();
    if mapped + memory.len() > MEMORY {
        let text = format!("no more than {} MiB of clients are possible", MEMORY >> 20);
        return Err(Error::new(Kind::Limit, text));
    }
    let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
    let kick = eventfd(0, flags).map_err(host("eventfd"))?;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let (bell, theirs) = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None)
        .map_err(host("socketpair"))?;
    // The client has nothing to say there. What it sent would wait until vbusd closes it.
    shutdown(&bell, Shutdown::Read).map_err(host("shutdown"))?;
    let copy = rustix::io::fcntl_dupfd_cloexec(&kick, 3).map_err(host("dup"))?;
    let edges = epoll::EventFlags::IN | epoll::EventFlags::ET;
    let data = epoll::EventData::new_u64(token);
    epoll::add(poll, &kick, data, edges).map_err(host("epoll"))?;
    let link = Link {
        memory: Rc::new(memory),
        bell: Rc::new(Bell(bell)),
        kick,
    };
    links.insert(id, link);
    Ok(vec![copy, theirs])
}

fn share(
    vbus: &mut Vbus,
    links: &Links,
    member: MemberId,
    id: ConnectionId,
    shared: Shared,
) -> Result<(), Error> {
    vbus.share(member, id, shared.queue, |role| {
        let Some(link) = links.get(&id) else {
            return Err(Error::new(Kind::NotFound, "the connection has no memory"));
        };
        if shared.count > limits::DESCRIPTORS {
            let text = format!("a queue has at most {} descriptors", limits::DESCRIPTORS);
            return Err(Error::new(Kind::Limit, text));
        }
        let size = paravane_vbus_shm::memory::size(shared.count) as u64;
        let end = shared.offset.checked_add(size);
        let broken = |error: Broken| Error::new(Kind::Broken, error.to_string());
        let end = end.ok_or_else(|| {
            broken(Broken::Memory(Outside {
                ptr: shared.offset,
                len: usize::try_from(size).unwrap_or(usize::MAX),
            }))
        })?;
        Endpoint::open(
            link.memory.clone(),
            shared.offset..end,
            shared.count,
            role,
            link.memory.clone(),
            link.bell.clone(),
        )
        .map_err(broken)
    })
}

/// Forgets connections that have ended. The client's socket ends with them.
pub fn prune(vbus: &Vbus, links: &mut Links, poll: &OwnedFd) {
    links.retain(|&id, link| {
        let open = vbus.is_open(id);
        if !open {
            // A client has a copy of the eventfd, so closing ours does not end the watch.
            let _ = epoll::delete(poll, &link.kick);
        }
        open
    });
}
