// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The thread that joins a bus again when vbusd has ended: only it connects sockets.

use anyhow::Context;
use paravane_confine::{self as confine, Files};
use paravane_devices::Waker;
use paravane_vbus::Kind;
use paravane_vbus_client::{Client, Error};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;
use tracing::{info, warn};

/// The thread, and its policy.
const NAME: &str = "vbus-join";
/// The longest time without a look at the machine's end.
const PATIENCE: Duration = Duration::from_millis(200);
/// Pause after a refusal.
const PAUSE: Duration = Duration::from_millis(200);

/// The way to the thread.
#[derive(Debug)]
pub struct Join {
    lost: Sender<Client>,
    news: Receiver<News>,
}

/// What the thread has found out.
#[derive(Debug)]
pub enum News {
    /// The device is no longer on the bus. The thread waits for it.
    Gone,
    /// The client has joined again.
    Joined(Box<Client>),
}

impl Join {
    /// Starts the thread, and confines it. It ends when this is dropped or the machine ends.
    ///
    /// # Errors
    /// The host's.
    pub fn start(waker: &Waker) -> anyhow::Result<Self> {
        let (lost, receiver) = channel();
        let (sender, news) = channel();
        let (confined, tell) = channel();
        let waker = waker.clone();
        let work = move || {
            let entered = confine::enter(NAME, &Files::none());
            let goes_on = entered.is_ok();
            let _ = confined.send(entered);
            if goes_on {
                run(&receiver, &sender, &waker);
            }
        };
        let thread = thread::Builder::new().name(NAME.to_string());
        thread
            .spawn(work)
            .context("cannot make the thread that joins the bus")?;
        tell.recv()
            .context("the thread that joins the bus has ended")??;
        Ok(Join { lost, news })
    }

    /// Gives a client away whose connection has ended.
    pub fn lose(&self, client: Client) {
        // The thread ends only with the machine.
        let _ = self.lost.send(client);
    }

    /// What there is to know since the last call.
    pub fn news(&self) -> Option<News> {
        self.news.try_recv().ok()
    }
}

fn run(lost: &Receiver<Client>, news: &Sender<News>, waker: &Waker) {
    while let Ok(mut client) = lost.recv() {
        let (mut told, mut gone) = (false, false);
        loop {
            if waker.ending().begun() {
                return;
            }
            let error = match client.reconnect(PATIENCE) {
                Ok(()) => break,
                Err(error) => error,
            };
            if !std::mem::replace(&mut told, true) {
                warn!("virtual bus: {error}");
            }
            // Only a bus without the device answers so.
            let missing = matches!(&error, Error::Refused(why) if why.kind() == Kind::NotFound);
            if missing && !std::mem::replace(&mut gone, true) {
                let _ = news.send(News::Gone);
                waker.wake();
            }
            thread::sleep(PAUSE);
        }
        info!("virtual bus: joined again");
        if news.send(News::Joined(Box::new(client))).is_err() {
            return;
        }
        waker.wake();
    }
}
