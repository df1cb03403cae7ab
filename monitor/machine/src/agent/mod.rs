// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The monitor's half of the conversation with the agent in a guest ([`paravane_agent_protocol`]).

mod link;
mod relay;
// A signal handler gives the terminal back.
#[expect(unsafe_code)]
mod terminal;

pub use link::Link;
pub use relay::{Ended, Relay};
pub use terminal::{LEAVE, Terminal};
