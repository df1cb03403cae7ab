// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Answers that wait for the threads of cards.
//!
//! A request that leads to orders for such a thread is answered when the thread has carried them
//! out, between two turns of its cards. vbusd's first thread continues during this. A peer has at
//! most one such answer: vbusd takes no further request of it before.

use crate::card::{Crew, Outcome};
use crate::serve::Answer;
use paravane_vbus::ConnectionId;
use paravane_vbus_protocol::{Reply, Request};
use std::collections::BTreeMap;
use std::sync::Arc;

/// An answer that waits.
#[derive(Debug)]
pub struct Waiting {
    /// The peer that gets it.
    pub peer: u64,
    /// The answer if nothing fails.
    pub answer: Answer,
    /// A request that is made again then, and the values for which it was tried.
    pub again: Option<(Request, Vec<String>)>,
    /// A connection that was opened, and whose card could not be made.
    pub failed: Option<ConnectionId>,
    /// Threads that have not reported yet.
    left: usize,
}

/// All of them.
#[derive(Debug, Default)]
pub struct Later {
    waiting: BTreeMap<u64, Waiting>,
    last: u64,
}

impl Later {
    /// Lets an answer wait until these threads have done what was ordered.
    pub fn wait(
        &mut self,
        crews: &[Arc<Crew>],
        peer: u64,
        answer: Answer,
        again: Option<(Request, Vec<String>)>,
    ) {
        self.last += 1;
        let (number, left) = (self.last, crews.len());
        for crew in crews {
            crew.must(move |worker| worker.answer(number));
            // That order is no request's.
            crew.given();
        }
        let waiting = Waiting {
            peer,
            answer,
            again,
            failed: None,
            left,
        };
        self.waiting.insert(number, waiting);
    }

    /// A thread has reported the result of orders. Returns the answer if it waits no more.
    pub fn told(&mut self, number: u64, outcome: Outcome) -> Option<Waiting> {
        let waiting = self.waiting.get_mut(&number)?;
        waiting.left = waiting.left.saturating_sub(1);
        waiting.complete(outcome);
        if waiting.left > 0 {
            return None;
        }
        self.waiting.remove(&number)
    }
}

impl Waiting {
    fn complete(&mut self, outcome: Outcome) {
        // A refused request stays refused.
        let Ok((reply, _)) = &mut self.answer else {
            return;
        };
        match (outcome, reply) {
            (Some(Ok(bytes)), Reply::Bytes(result)) => *result = bytes,
            (Some(Err(error)), reply) => {
                if let Reply::Opened(id) = reply {
                    self.failed = Some(*id);
                }
                (self.again, self.answer) = (None, Err(error));
            }
            (Some(Ok(_)) | None, _) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use paravane_vbus::{Error, Kind};

    fn complete(answer: Answer, outcome: Outcome) -> Waiting {
        let mut waiting = Waiting {
            peer: 1,
            answer,
            again: Some((Request::Classes, Vec::new())),
            failed: None,
            left: 1,
        };
        waiting.complete(outcome);
        waiting
    }

    #[test]
    fn an_answer_is_what_its_orders_led_to() {
        let error = |text: &str| Error::new(Kind::Host, text);
        let reply = |reply| Ok((reply, Vec::new()));
        let of = |waiting: Waiting| waiting.answer.map(|(reply, _)| reply);
        let id = ConnectionId(3);
        // The result of a call.
        let called = complete(reply(Reply::Bytes(Vec::new())), Some(Ok(vec![1, 2])));
        assert_eq!(of(called), Ok(Reply::Bytes(vec![1, 2])));
        // Nothing that fails.
        let opened = complete(reply(Reply::Opened(id)), Some(Ok(Vec::new())));
        assert_eq!((opened.failed, opened.again.is_some()), (None, true));
        assert_eq!(of(opened), Ok(Reply::Opened(id)));
        assert_eq!(of(complete(reply(Reply::Done), None)), Ok(Reply::Done));
        // A card that could not be made, so its connection ends.
        let failed = complete(reply(Reply::Opened(id)), Some(Err(error("none"))));
        assert_eq!((failed.failed, failed.again.is_none()), (Some(id), true));
        assert_eq!(of(failed), Err(error("none")));
        // What was refused before.
        let refused = complete(Err(error("first")), Some(Err(error("second"))));
        assert_eq!(refused.failed, None);
        assert_eq!(of(refused), Err(error("first")));
    }
}
