// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Serves requests on the control socket, in every state of the machine.

use super::background::Background;
use super::card;
use super::drive::{Drive, Machine};
use super::launch::Started;
use super::life::{Event, State};
use crate::control::{Client, Request, Server, json_file};
use crate::layout::Layout;
use crate::stats::Stats;
use paravane_agent_protocol::Size;
use serde::Serialize;
use std::time::Duration;

/// Clients that may wait for a connection to the agent.
const MAX_WAITING: usize = 256;

/// Answers with a file whose content is JSON.
fn give_json(client: Client, what: &impl Serialize) {
    match json_file(what) {
        Ok(file) => client.give(&file),
        Err(error) => client.answer(Err(format!("{error:#}"))),
    }
}

impl Drive<'_> {
    /// Serves the requests that have arrived.
    pub(super) fn requests(&mut self) -> anyhow::Result<()> {
        let requests = self.control.as_mut().map(Server::requests);
        for (request, client) in requests.unwrap_or_default() {
            self.request(request, client)?;
        }
        Ok(())
    }

    fn request(&mut self, request: Request, client: Client) -> anyhow::Result<()> {
        match request {
            Request::Kill => {
                client.answer(Ok(()));
                return self.happens(Event::Kill);
            }
            Request::Stop { seconds } => {
                // The client watches the machine's lock for the end.
                client.answer(Ok(()));
                return self.happens(Event::Stop(Duration::from_secs(seconds)));
            }
            Request::Agent => match self.life.state() {
                State::Starting { .. } | State::Booting { .. } | State::Running => {
                    if self.waiting.len() == MAX_WAITING {
                        client.answer(Err("too many wait for its agent".to_string()));
                    } else {
                        self.waiting.push_back(client);
                    }
                }
                State::Ending { why, .. } => client.answer(Err(format!("it is ending: {why}"))),
                _ => client.answer(Err("it is ending".to_string())),
            },
            Request::Stat => self.with_machine(client, |started, client| {
                give_json(client, &Stats::of(&started.vm.observer(), &started.choice));
            }),
            Request::Card { attribute, value } => self.with_machine(client, |started, client| {
                let set = card::set(&started.vm.observer(), &attribute, value);
                client.answer(set.map_err(|error| format!("{error:#}")));
            }),
            Request::Layout => self.with_machine(client, |started, client| {
                let build_id = started.kernel.build_id();
                match Layout::of(&started.vm, build_id, started.layer) {
                    Some(layout) => give_json(client, &layout),
                    None => client.answer(Err(format!(
                        "it runs on {}, whose code cannot be sampled: start it with \
                         --hypervisor process",
                        started.choice.name
                    ))),
                }
            }),
            Request::Kernel => self.with_machine(client, |started, client| {
                client.give(&started.kernel);
            }),
            Request::Input => match self.background.as_ref().and_then(Background::input) {
                Some(input) => client.give(input),
                None => client.answer(Err(
                    "its command has no input: it was not started with --interactive".into(),
                )),
            },
            Request::Resize { columns, rows } => {
                let size = Size { columns, rows };
                if let Some(relay) = &mut self.relay {
                    relay.resize(size)?;
                } else if let Some(exec) = &mut self.exec {
                    // The command starts later, with this size.
                    exec.terminal = exec.terminal.map(|_| size);
                }
                client.answer(Ok(()));
            }
            Request::Signal { .. } if !self.life.has_command() => {
                client.answer(Err("it has no command".to_string()));
            }
            Request::Signal { number } => match (self.life.state(), &mut self.relay) {
                (State::Running, Some(relay)) => {
                    relay.signal(number)?;
                    client.answer(Ok(()));
                }
                (State::Starting { .. } | State::Booting { .. }, _) => {
                    client.answer(Err("its command does not run yet".to_string()));
                }
                _ => client.answer(Err("it is ending".to_string())),
            },
        }
        Ok(())
    }

    /// Serves a request that needs a machine that has been made.
    fn with_machine(&self, client: Client, serve: impl FnOnce(&Started, Client)) {
        match &self.machine {
            Machine::Starting(_) => client.answer(Err("it is being created".to_string())),
            Machine::Started(started) => serve(started, client),
        }
    }
}
