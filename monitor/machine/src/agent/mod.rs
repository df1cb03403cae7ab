// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The monitor's half of the conversation with the agent in a guest ([`paravane_agent_protocol`]).

mod link;
mod relay;
#[expect(unsafe_code, reason = "a signal handler restores the terminal")]
mod terminal;

pub use link::Link;
pub use relay::{Ended, Relay};
pub use terminal::{LEAVE, Terminal};
