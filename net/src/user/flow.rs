// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One TCP connection: smoltcp's socket towards the guest, the host's socket towards the world, and
//! the bytes between them.

use super::events::EventFlags;
use super::guard::{self, Header, Window};
use super::host::Host;
use super::wire::Wire;
use super::{SMALL_BUFFER, TCP_BUFFER};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use smoltcp::iface::{SocketHandle, SocketSet};
use smoltcp::socket::tcp;
use smoltcp::time::{Duration, Instant};
use std::net::SocketAddrV4;

/// The guest must answer within this time when it has something to answer.
pub const TIMEOUT: Duration = Duration::from_secs(120);
/// How long an acknowledgement waits for data that takes it along. A frame with nothing else costs
/// the guest an interrupt.
const ACK_DELAY: Duration = Duration::from_millis(5);
/// After an acknowledgement that waited in vain, this many pieces of data are acknowledged at once;
/// twice as many after the next one, up to [`MOST_PROMPT`].
const PROMPT: u32 = 8;
const MOST_PROMPT: u32 = 1024;
/// The most times that a connection to the guest is restarted because the guest is in TIME-WAIT.
const MOST_AGAIN: u8 = 3;
/// The number of duplicate acknowledgements after which smoltcp retransmits.
const DUPLICATES: usize = 3;

/// A socket of smoltcp, alone in its set: a frame is given to the socket of its connection, and no
/// other is looked at.
#[derive(Debug)]
pub struct Socket {
    set: SocketSet<'static>,
    handle: SocketHandle,
}

impl Socket {
    /// `large`: its buffers have [`TCP_BUFFER`] bytes, else [`SMALL_BUFFER`] bytes.
    pub fn new(large: bool) -> Self {
        let size = if large { TCP_BUFFER } else { SMALL_BUFFER };
        let buffer = || tcp::SocketBuffer::new(vec![0; size]);
        let mut socket = tcp::Socket::new(buffer(), buffer());
        // This wire loses and delays nothing, so waiting gains nothing.
        socket.set_nagle_enabled(false);
        let mut set = SocketSet::new(Vec::with_capacity(1));
        let handle = set.add(socket);
        Socket { set, handle }
    }

    /// Makes it ready for another connection. The set remembers where the last one's guest was
    /// searched.
    pub fn renew(&mut self) {
        let smoltcp::socket::Socket::Tcp(mut socket) = self.set.remove(self.handle);
        socket.set_keep_alive(None);
        socket.set_timeout(None);
        self.handle = self.set.add(socket);
    }

    /// The only socket.
    pub fn tcp(&mut self) -> &mut tcp::Socket<'static> {
        self.set.get_mut(self.handle)
    }

    /// Whether its buffers are large.
    pub fn is_large(&self) -> bool {
        let socket: &tcp::Socket<'static> = self.set.get(self.handle);
        socket.recv_capacity() == TCP_BUFFER
    }

    /// For frames of the guest.
    pub fn set(&mut self) -> &mut SocketSet<'static> {
        &mut self.set
    }
}

/// The stage of a connection.
#[derive(Debug)]
pub enum State {
    /// The host's socket is connecting. The guest's SYN waits.
    Connecting { syn: Vec<u8> },
    /// The guest's side exists.
    Open(Box<Socket>),
}

/// The guest's end and the remote end. Together they identify the flow.
pub type Ends = (SocketAddrV4, SocketAddrV4);

/// A connection.
#[derive(Debug)]
pub struct Flow {
    pub ends: Ends,
    host: Host,
    pub state: State,
    window: Window,
    /// The guest has sent its end.
    fin: bool,
    /// The guest has sent all, and the host's socket is shut down for writing.
    guest_done: bool,
    /// Data or an end of either side was lost, or will be.
    failed: bool,
    /// Both ends have closed, and nothing has to be sent any more.
    quiet: bool,
    /// It is in the queue of those to be served.
    pub queued: bool,
    /// When the guest's side must be looked at, if nothing comes before.
    pub deadline: Option<Instant>,
    /// The deadline has come.
    pub late: bool,
    /// It came in through a published port.
    pub published: bool,
    /// The number of the guest's SYN, where that has begun the connection.
    first: Option<u32>,
    /// How many times the connection was restarted.
    again: u8,
    /// The last window that the guest announced was 0.
    no_room: bool,
    /// Bytes that the guest had not acknowledged when the flow was last served.
    owed: usize,
    /// When something last came from either side.
    pub used: Instant,
    /// Acknowledgements may wait.
    ack_delay: bool,
    /// Pieces of data of the guest to be acknowledged at once.
    prompt: u32,
    /// The value of `prompt` after the next acknowledgement that waits in vain.
    next_prompt: u32,
    /// When the guest must have acknowledged the end.
    last: Option<Instant>,
    /// There is another driver, and maybe another guest: it must have answered by then.
    doubt: Option<Instant>,
    /// The acknowledgements that waited in vain.
    #[cfg(test)]
    pub late_count: u32,
}

/// The next step after a flow was served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Nothing until something comes, or its deadline.
    Wait,
    /// The guest has no room for its frames.
    Stuck,
    /// It has ended at both ends.
    Ended,
}

impl Flow {
    pub fn new(ends: Ends, host: OwnedFd, state: State, ack_delay: bool, now: Instant) -> Self {
        // Those that the guest starts connect first.
        let open = matches!(state, State::Open(_));
        Flow {
            ends,
            host: Host::new(host, open),
            state,
            window: Window::default(),
            fin: false,
            guest_done: false,
            failed: false,
            quiet: false,
            queued: false,
            deadline: None,
            late: false,
            published: open,
            first: None,
            again: 0,
            no_room: false,
            owed: 0,
            used: now,
            ack_delay,
            prompt: 0,
            next_prompt: PROMPT,
            last: None,
            doubt: None,
            #[cfg(test)]
            late_count: 0,
        }
    }

    /// The host's socket has reported. Returns whether there is something to do.
    pub fn report(&mut self, flags: EventFlags) -> bool {
        self.host.report(flags)
    }

    /// Whether the host has made the connection, while it is [`State::Connecting`]. `None`: not
    /// yet.
    pub fn connected(&self) -> Option<Result<(), Errno>> {
        self.host.connected()
    }

    /// Whether this SYN of the guest begins another connection between the same ends, by its
    /// number: the guest has forgotten this one. Not while the host has not accepted what the guest
    /// had sent: that must arrive.
    pub fn forgotten(&mut self, syn: &[u8]) -> bool {
        let seq = guard::header(syn).map(|header| header.seq);
        let other = self.first.is_some() && seq.is_some() && self.first != seq;
        let waits = match &mut self.state {
            State::Open(socket) => self.fin && socket.tcp().can_recv(),
            State::Connecting { .. } => false,
        };
        other && !waits
    }

    /// Whether the guest has ended its side.
    pub fn guest_ended(&self) -> bool {
        self.fin
    }

    /// Whether the guest has not answered yet.
    pub fn half_open(&mut self) -> bool {
        match &mut self.state {
            State::Open(socket) => handshakes(socket.tcp().state()),
            State::Connecting { .. } => true,
        }
    }

    /// Whether something waits for the guest.
    pub fn waits(&self) -> bool {
        self.queued || self.deadline.is_some()
    }

    /// There may be another guest.
    pub fn doubt(&mut self, now: Instant) {
        if let State::Open(socket) = &mut self.state {
            socket.tcp().set_keep_alive(Some(TIMEOUT / 4));
            self.doubt = Some(now + TIMEOUT);
        }
    }

    /// A frame of the guest for an open connection.
    pub fn segment(&mut self, wire: &mut Wire<'_>, frame: &[u8]) {
        let State::Open(socket) = &mut self.state else {
            return;
        };
        let Some(header) = guard::header(frame) else {
            return;
        };
        let (state, room) = (socket.tcp().state(), socket.tcp().recv_capacity());
        let Some(frame) = self.window.admit(state, room, &header, frame) else {
            return;
        };
        self.used = wire.now;
        if self.doubt.take().is_some() {
            socket.tcp().set_keep_alive(None);
        }
        if state == tcp::State::Listen && header.syn {
            self.first = Some(header.seq);
        }
        let before = socket.tcp().recv_queue();
        // Nothing will take along what acknowledges after the end of either side.
        let may_wait = self.ack_delay && self.prompt == 0 && !header.fin && !self.host.done;
        socket.tcp().set_ack_delay(may_wait.then_some(ACK_DELAY));
        wire.out.said = None;
        wire.ingress(socket.set(), &frame);
        let said = wire.out.said.take();
        if let Some(said) = &said {
            self.window.sent(said);
        }
        if socket.tcp().recv_queue() > before {
            self.prompt = self.prompt.saturating_sub(1);
        }
        match socket.tcp().state() {
            tcp::State::CloseWait
            | tcp::State::LastAck
            | tcp::State::Closing
            | tcp::State::TimeWait => self.fin = true,
            // In TIME-WAIT both ends were there.
            tcp::State::Closed if header.rst && state != tcp::State::TimeWait => self.failed = true,
            _ => {}
        }
        let reset = said.is_some_and(|said| said.rst);
        if reset && state == tcp::State::SynSent && !header.syn {
            self.begin_anew(wire);
        }
        if header.ack.is_some() && !header.rst {
            self.room(wire, &header, &frame);
        }
    }

    /// The guest was in TIME-WAIT, which the reset has ended. smoltcp's next SYN would take a
    /// second.
    fn begin_anew(&mut self, wire: &mut Wire<'_>) {
        let State::Open(socket) = &mut self.state else {
            return;
        };
        if self.again < MOST_AGAIN {
            self.again += 1;
            self.window = Window::default();
            let (guest, remote) = self.ends;
            let tcp = socket.tcp();
            tcp.abort();
            // The addresses are those of the first time.
            let _ = tcp.connect(wire.interface.context(), guest, remote);
        }
    }

    /// The guest has announced a window. If the last one was 0, the guest may have dropped segments
    /// that were on the way. smoltcp stops its retransmission timer at a window of 0, and does not
    /// start it again. So it receives this acknowledgement as duplicates, and retransmits at once.
    fn room(&mut self, wire: &mut Wire<'_>, header: &Header, frame: &[u8]) {
        let State::Open(socket) = &mut self.state else {
            return;
        };
        let opens = self.no_room && header.window > 0;
        self.no_room = header.window == 0;
        if !opens || socket.tcp().send_queue() == 0 {
            return;
        }
        let Some(bare) = guard::bare(header, frame) else {
            return;
        };
        for _ in 0..DUPLICATES {
            wire.out.said = None;
            wire.ingress(socket.set(), &bare);
            if let Some(said) = wire.out.said.take() {
                self.window.sent(&said);
            }
        }
    }

    /// Does all that can be done without waiting.
    pub fn serve(&mut self, wire: &mut Wire<'_>) -> Next {
        let State::Open(socket) = &mut self.state else {
            return Next::Wait;
        };
        let tcp = socket.tcp();
        let acknowledged = tcp.send_queue() < self.owed;
        let written = self.host.write(tcp);
        if self.fin && !tcp.can_recv() && !self.guest_done {
            self.guest_done = true;
            self.host.shut();
        }
        let read = self.host.read(tcp);
        if written || read {
            self.used = wire.now;
        }
        self.owed = tcp.send_queue();
        // While the guest has data to acknowledge, smoltcp waits for that. It waits for ever for a
        // program that does not read. That is too long where the connection has failed.
        let ending =
            self.host.broken() || (ends(tcp.state()) && (self.owed == 0 || closed(tcp.state())));
        let last = self.last.filter(|_| !written && !acknowledged);
        let last = ending.then(|| last.unwrap_or(wire.now + TIMEOUT));
        self.last = last;
        let over = [last, self.doubt].into_iter().flatten().min();
        // Data that came before a failure reaches the guest before the failure. A reset that
        // overtakes data is one with a wrong number, too.
        let failed = self.host.failed() && self.owed == 0;
        let given_up = failed || over.is_some_and(|over| over <= wire.now);
        if given_up {
            // Close this end, too.
            tcp.abort();
            self.failed = true;
            self.quiet = false;
        }
        // An idle connection may stay as long as its ends want. smoltcp would end it.
        let waits = handshakes(tcp.state()) || tcp.send_queue() > 0;
        tcp.set_timeout(waits.then_some(TIMEOUT));
        let mut deadline = None;
        // Data of the guest may wait for the host longer than smoltcp keeps it.
        if !self.quiet {
            wire.out.said = None;
            let sent = wire.egress(socket.set());
            if let Some(said) = wire.out.said.take() {
                self.window.sent(&said);
            }
            if std::mem::take(&mut self.late) && sent && !read {
                self.prompt = self.next_prompt;
                self.next_prompt = (self.next_prompt * 2).min(MOST_PROMPT);
                #[cfg(test)]
                {
                    self.late_count += 1;
                }
            }
            deadline = wire.deadline(socket.set());
            // Nothing to do but to forget the connection, later.
            self.quiet = socket.tcp().state() == tcp::State::TimeWait
                && !wire.out.stuck()
                && deadline.is_none_or(|at| at > wire.now + ACK_DELAY);
            deadline = deadline.filter(|_| !self.quiet);
        }
        self.deadline = [deadline, over].into_iter().flatten().min();
        let tcp = socket.tcp();
        match tcp.state() {
            _ if wire.out.stuck() => Next::Stuck,
            // The guest has taken its SYN back.
            tcp::State::Listen => Next::Ended,
            // A reset has been sent, or the guest's Ethernet address is not known. Or both ends
            // have closed, and the last acknowledgement was sent: on this wire it arrives. Data
            // that the guest has sent before is passed on first.
            tcp::State::Closed if given_up || !tcp.can_recv() => Next::Ended,
            tcp::State::TimeWait if self.quiet && !tcp.can_recv() => Next::Ended,
            _ => Next::Wait,
        }
    }

    /// The guest does not answer any more.
    pub fn give_up(&mut self) {
        self.failed = true;
    }

    /// Ends it now. The guest gets a reset if it takes frames.
    pub fn abort(&mut self, wire: &mut Wire<'_>) {
        self.failed = true;
        if let State::Open(socket) = &mut self.state {
            socket.tcp().abort();
            wire.egress(socket.set());
        }
    }

    /// The guest's socket, when the flow has ended. The host's end sees a failure where there was
    /// one.
    pub fn end(self) -> Option<Box<Socket>> {
        if self.failed || !self.guest_done {
            self.host.fail();
        }
        match self.state {
            State::Open(mut socket) => {
                socket.tcp().abort();
                socket.renew();
                Some(socket)
            }
            State::Connecting { .. } => None,
        }
    }
}

/// Whether the connection is being made.
fn handshakes(state: tcp::State) -> bool {
    matches!(
        state,
        tcp::State::Listen | tcp::State::SynSent | tcp::State::SynReceived
    )
}

/// Whether the guest has to acknowledge the end, or has done so.
fn ends(state: tcp::State) -> bool {
    matches!(
        state,
        tcp::State::FinWait1
            | tcp::State::Closing
            | tcp::State::LastAck
            | tcp::State::TimeWait
            | tcp::State::Closed
    )
}

/// Whether the guest's end is closed both ways.
fn closed(state: tcp::State) -> bool {
    matches!(state, tcp::State::TimeWait | tcp::State::Closed)
}
