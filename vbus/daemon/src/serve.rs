// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The clients' requests.

use crate::bell::Bell;
use crate::card::{Cards, Crew, Elsewhere};
use crate::guard::Mark;
use crate::memory::{Lent, Memory};
use crate::peer::Peer;
use crate::server::PEERS;
use paravane_vbus::{
    Broken, ConnectionId, Endpoint, Error, Kind, MemberId, MemoryContext, Offsets, Outside,
    ReadOnly, Spaces, Table, Vbus, limits,
};
use paravane_vbus_protocol::{Reply, Request, Shared};
use paravane_vbus_shm::loans;
use rustix::event::{EventfdFlags, epoll, eventfd};
use rustix::io::Errno;
use rustix::net::{AddressFamily, Shutdown, SocketFlags, SocketType, shutdown, socketpair};
use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// Most memory of all clients together. Their pages may count as vbusd's own.
const MEMORY: u64 = 4 << 30;
/// One user's clients, unless it is the administrator, get at most this part of the memory and of
/// the connections.
const SHARE: u64 = 4;
/// Descriptors that vbusd keeps of a connection, and those that it needs besides.
const FILES: usize = 2;
const OTHER_FILES: usize = PEERS + 64 + LENDERS;
/// Most connections that lend: vbusd keeps a further descriptor of each.
const LENDERS: usize = 32;

/// The number of connections that are possible with `files` descriptors.
pub fn most_connections(files: usize) -> usize {
    files.saturating_sub(OTHER_FILES) / FILES
}

/// What vbusd has of a connection.
#[derive(Debug)]
pub struct Link {
    pub member: MemberId,
    /// The client's user; `None`: the administrator.
    uid: Option<u32>,
    memory: Arc<Offsets<Memory>>,
    lent: Option<LentMemory>,
    bell: Arc<Bell>,
    /// The eventfd on which the client notifies the device. Never read: it is watched for edges, so
    /// the client cannot make a read of it block.
    kick: OwnedFd,
}

/// The memory of a client's slots.
#[derive(Debug)]
struct LentMemory {
    /// For other clients.
    file: OwnedFd,
    bytes: u64,
    mark: Mark,
    /// What the client's queues can name: its own memory, and this one.
    spaces: Arc<Spaces>,
}

impl Link {
    /// What the client's queues can name.
    fn context(&self) -> Arc<dyn MemoryContext> {
        match &self.lent {
            Some(lent) => lent.spaces.clone(),
            None => self.memory.clone(),
        }
    }

    /// Bytes of the client's memory.
    fn bytes(&self) -> u64 {
        self.memory.0.len() + self.lent.as_ref().map_or(0, |lent| lent.bytes)
    }

    /// Whether the host could not give a page of the client's memory.
    pub fn has_failed(&self) -> bool {
        let lent = self.lent.as_ref().map(|lent| lent.mark);
        let mut marks = lent.into_iter().chain([self.memory.0.mark()]);
        marks.any(Mark::has_failed)
    }

    /// The client's user, unless it is the administrator.
    pub fn uid(&self) -> Option<u32> {
        self.uid
    }

    /// The memory that the client lends.
    pub fn lent(&self) -> Option<BorrowedFd<'_>> {
        self.lent.as_ref().map(|lent| lent.file.as_fd())
    }
}

/// All connections.
pub type Links = BTreeMap<ConnectionId, Link>;

/// What a request leads to: a reply with files.
pub type Answer = Result<(Reply, Vec<OwnedFd>), Error>;

fn host(what: &str) -> impl Fn(Errno) -> Error {
    move |error| Error::new(Kind::Host, format!("{what}: {error}"))
}

/// What connections need of vbusd.
#[derive(Clone, Copy, Debug)]
pub struct Host<'a> {
    /// Gets the eventfds of new connections.
    pub poll: &'a OwnedFd,
    /// The number that identifies a connection there.
    pub token: fn(ConnectionId) -> u64,
    /// Most connections.
    pub most: usize,
    /// The threads that get the eventfds of some connections.
    pub cards: &'a Cards,
}

/// Answers a request of a client.
pub fn answer(
    vbus: &mut Vbus,
    links: &mut Links,
    peer: &mut Peer,
    request: &Request,
    files: &[OwnedFd],
    vbusd: &Host<'_>,
) -> Answer {
    if let Request::Join { bus } = request {
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
        &Request::Open { interface, version } => {
            let [memory] = files else {
                let text = "a connection needs one memfd";
                return Err(Error::new(Kind::Invalid, text));
            };
            let memory = Memory::map(memory)?;
            let uid = (!peer.administrator).then_some(peer.who.uid);
            // Before a device opens anything of the host for it.
            admit(links, uid, (1, memory.len()), vbusd.most)?;
            if let Some(crew) = vbusd.cards.crew(vbus.class_of(member, interface)?) {
                admit_card(links, uid, crew, vbusd.cards.elsewhere())?;
            }
            let ends = Ends::new()?;
            let id = vbus.open(member, interface, version)?;
            match link(links, (id, member, uid), memory, ends, vbusd) {
                Ok(files) => Ok((Reply::Opened(id), files)),
                Err(error) => {
                    vbus.close(member, id)?;
                    Err(error)
                }
            }
        }
        &Request::Share { connection, shared } => {
            share(vbus, links, member, connection, shared)?;
            done(Reply::Done)
        }
        Request::Call {
            connection,
            call,
            argument,
        } => done(Reply::Bytes(vbus.call(
            member,
            *connection,
            *call,
            argument,
        )?)),
        &Request::Close { connection } => {
            vbus.close(member, connection)?;
            done(Reply::Done)
        }
        &Request::Prioritize {
            connection,
            priority,
        } => {
            vbus.prioritize(member, connection, priority)?;
            done(Reply::Done)
        }
        Request::Lend { .. } => {
            lend(vbus, links, member, request, files, vbusd.most)?;
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

/// Checks that a user may have these further connections and bytes of memory.
fn admit(
    links: &Links,
    uid: Option<u32>,
    (more, len): (u64, u64),
    most: usize,
) -> Result<(), Error> {
    let used = |which: &dyn Fn(&Link) -> bool| {
        let links = links.values().filter(|link| which(link));
        links.fold((0, 0), |(count, memory), link| {
            (count + 1, memory + link.bytes())
        })
    };
    let all = (used(&|_| true), 1, "clients");
    let own = (used(&|link| link.uid == uid), SHARE, "clients of a user");
    for ((count, memory), share, whose) in [Some(all), uid.map(|_| own)].into_iter().flatten() {
        let most = most as u64 / share;
        if count + more > most {
            let text = format!("no more than {most} connections of {whose} are possible");
            return Err(Error::new(Kind::Limit, text));
        }
        if memory + len > MEMORY / share {
            let most = MEMORY / share >> 20;
            let text = format!("no more than {most} MiB of {whose} are possible");
            return Err(Error::new(Kind::Limit, text));
        }
    }
    Ok(())
}

/// Checks that a user may have another card on a thread. A card has memory and descriptors of vbusd
/// that [`admit`] does not see.
fn admit_card(
    links: &Links,
    uid: Option<u32>,
    crew: &Arc<Crew>,
    elsewhere: &Elsewhere,
) -> Result<(), Error> {
    let most = (crew.most() as u64 / SHARE).max(1);
    let own = links.iter().filter(|(_, link)| link.uid == uid);
    if uid.is_some() && elsewhere.count(crew, own.map(|(id, _)| id)) as u64 >= most {
        let text = format!("no more than {most} clients of a user are possible at such devices");
        return Err(Error::new(Kind::Limit, text));
    }
    Ok(())
}

/// The files of a connection.
struct Ends {
    kick: OwnedFd,
    bell: OwnedFd,
    /// The client's: a copy of the eventfd, and where it is notified.
    theirs: [OwnedFd; 2],
}

impl Ends {
    fn new() -> Result<Self, Error> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let kick = eventfd(0, flags).map_err(host("eventfd"))?;
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (bell, theirs) = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None)
            .map_err(host("socketpair"))?;
        // The client has nothing to say there. Bytes that it sent would wait until vbusd closes the
        // socket.
        shutdown(&bell, Shutdown::Read).map_err(host("shutdown"))?;
        let copy = rustix::io::fcntl_dupfd_cloexec(&kick, 3).map_err(host("dup"))?;
        Ok(Ends {
            kick,
            bell,
            theirs: [copy, theirs],
        })
    }
}

/// Lets a connection with this memory be notified. Returns the client's files.
fn link(
    links: &mut Links,
    (id, member, uid): (ConnectionId, MemberId, Option<u32>),
    memory: Memory,
    ends: Ends,
    vbusd: &Host<'_>,
) -> Result<Vec<OwnedFd>, Error> {
    let Ends { kick, bell, theirs } = ends;
    if let Some(crew) = vbusd.cards.elsewhere().of(id) {
        let copy = rustix::io::fcntl_dupfd_cloexec(&kick, 3).map_err(host("dup"))?;
        crew.order(move |worker| {
            let heard = worker.listen(id, copy);
            worker.note(heard.map(|()| Vec::new()));
        })?;
    } else {
        let edges = epoll::EventFlags::IN | epoll::EventFlags::ET;
        let data = epoll::EventData::new_u64((vbusd.token)(id));
        epoll::add(vbusd.poll, &kick, data, edges).map_err(host("epoll"))?;
    }
    let link = Link {
        member,
        uid,
        memory: Arc::new(Offsets(memory)),
        lent: None,
        bell: Arc::new(Bell(bell)),
        kick,
    };
    links.insert(id, link);
    Ok(theirs.into())
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
            link.context(),
            link.bell.clone(),
        )
        .map_err(broken)
    })
}

/// Lets a client lend.
fn lend(
    vbus: &mut Vbus,
    links: &mut Links,
    member: MemberId,
    request: &Request,
    files: &[OwnedFd],
    most: usize,
) -> Result<(), Error> {
    let &Request::Lend {
        connection: id,
        table,
        slots,
        size,
    } = request
    else {
        return Ok(());
    };
    let invalid = |text: String| Error::new(Kind::Invalid, text);
    let [file] = files else {
        return Err(invalid("what is lent is in one memfd".to_string()));
    };
    let link = links.get(&id).filter(|link| link.member == member);
    let Some(link) = link else {
        return Err(Error::new(Kind::NotFound, "the connection has no memory"));
    };
    let lent = Lent::map(file)?;
    let bytes = u64::from(slots) * u64::from(size);
    if slots > loans::SLOTS || bytes == 0 || bytes > lent.len() || lent.len() > loans::BYTES {
        let text = format!(
            "{slots} slots of {size} bytes are not possible in {} bytes: 1 to {} are, of one byte \
             at least, in {} bytes at most",
            lent.len(),
            loans::SLOTS,
            loans::BYTES
        );
        return Err(invalid(text));
    }
    if links.values().filter(|link| link.lent.is_some()).count() == LENDERS {
        let text = format!("no more than {LENDERS} clients that share memory are possible");
        return Err(Error::new(Kind::Limit, text));
    }
    admit(links, link.uid, (0, lent.len()), most)?;
    let copy = rustix::io::fcntl_dupfd_cloexec(file, 3).map_err(host("dup"))?;
    let memory = link.memory.clone();
    vbus.lend(member, id, || {
        let broken = |error: Broken| Error::new(Kind::Broken, error.to_string());
        Table::open(memory, table, slots, size).map_err(broken)
    })?;
    if let Some(link) = links.get_mut(&id) {
        let (bytes, mark) = (lent.len(), lent.mark());
        let mut spaces = Spaces::new(link.memory.clone(), 1);
        spaces.set(1, Some(Arc::new(ReadOnly(lent))));
        link.lent = Some(LentMemory {
            file: copy,
            bytes,
            mark,
            spaces: Arc::new(spaces),
        });
    }
    Ok(())
}

/// Forgets connections that have ended, with their cards. The client's socket ends with them.
pub fn prune(vbus: &Vbus, links: &mut Links, poll: &OwnedFd, elsewhere: &Elsewhere) {
    links.retain(|&id, link| {
        let stays = vbus.is_open(id) || elsewhere.is_ending(id);
        if !stays {
            // A client has a copy of the eventfd, so closing ours does not end the watch.
            let _ = epoll::delete(poll, &link.kick);
        }
        stays
    });
}

/// Whether a card of this member has not ended with its connection: it may still use the member's
/// memory.
pub fn is_ending(links: &Links, member: MemberId, elsewhere: &Elsewhere) -> bool {
    let mut own = links.iter().filter(|(_, link)| link.member == member);
    own.any(|(&id, _)| elsewhere.is_ending(id))
}
