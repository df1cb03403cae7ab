// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How much a driver can make a device do: in one round, at a time, with one chain.

use super::buffers::Buffers;
use super::driver::BUFFERS;
use super::test_guest::{FREE, Guest, SIZE};
use super::{Broken, Ending};
use std::sync::Arc;

/// More than any round may have.
const MANY: u32 = 100_000;

/// The guest makes the next chain available before the device returns the last one.
#[test]
fn a_queue_without_end_is_worked_through_in_rounds() {
    let mut guest = Guest::new(1);
    let mut driver = guest.driver(0);
    let mut done = 0;
    let head = guest.offer(0, &[(FREE, 1, true)]);
    for round in 0..10 {
        let before = done;
        while let Some(chain) = driver.pop(0).unwrap() {
            assert_eq!(chain.head_index(), head);
            let index = u16::try_from(done % u32::from(SIZE)).unwrap();
            guest.entry(0, index.wrapping_add(1), head);
            guest.bump(0, 1);
            driver.push(0, head, 1).unwrap();
            done += 1;
            assert!(done < MANY, "a round without end");
        }
        assert!(
            done - before >= u32::from(SIZE),
            "round {round}: {}",
            done - before
        );
        // The remaining chains are reported, and come in the next round.
        assert_eq!(driver.end_round(), 1);
    }
    // An empty queue is not visited again.
    assert!(driver.pop(0).unwrap().is_some());
    assert!(driver.pop(0).unwrap().is_none());
    assert_eq!(driver.end_round(), 0);
}

#[test]
fn of_a_machine_that_ends_nothing_comes() {
    let mut guest = Guest::new(1);
    let ending = Ending::default();
    let mut driver = guest.driver(0).until(ending.clone());
    guest.offer(0, &[(FREE, 1, true)]);
    guest.offer(0, &[(FREE, 1, true)]);
    assert!(driver.pop(0).unwrap().is_some());
    ending.begin();
    assert!(driver.pop(0).unwrap().is_none());
    assert_eq!(driver.end_round(), 0);
}

/// A queue has a descriptor for each request that the device can have.
#[test]
fn no_more_requests_at_a_time_than_the_queue_has_room_for() {
    let mut guest = Guest::new(2);
    let mut driver = guest.driver(0);
    for queue in 0..2 {
        let head = guest.offer(queue, &[(FREE, 1, true)]);
        for index in 0..SIZE {
            guest.entry(queue, index, head);
        }
        guest.bump(queue, SIZE - 1);
        for _ in 0..SIZE {
            assert!(driver.pop(queue).unwrap().is_some());
        }
        assert!(driver.pop(queue).unwrap().is_none());
        // A chain that was put back and one that was returned can come again, but not one more.
        driver.put_back(queue);
        assert!(driver.pop(queue).unwrap().is_some());
        driver.push(queue, head, 0).unwrap();
        guest.bump(queue, 2);
        assert!(driver.pop(queue).unwrap().is_some());
        assert!(matches!(driver.pop(queue), Err(Broken::Rule(why)) if why.contains("at a time")));
    }
}

#[test]
fn no_more_buffers_than_a_queue_has_room_for() {
    let most = u16::try_from(BUFFERS).unwrap();
    for (parts, good) in [
        (1, true),
        (most, true),
        (most + 1, false),
        (u16::MAX, false),
    ] {
        let mut guest = Guest::new(1);
        let mut driver = guest.driver(0);
        guest.offer_table(0, FREE + 0x1000, parts);
        match driver.pop(0) {
            Ok(chain) => assert_eq!(
                chain.map(Iterator::count),
                good.then_some(parts.into()),
                "{parts}"
            ),
            Err(error) => assert!(
                !good && error.to_string().contains("more buffers"),
                "{parts}: {error}"
            ),
        }
    }
}

/// The guest can change a chain at any time, so its buffers are counted when they are kept.
#[test]
fn a_chain_that_grows_is_not_kept() {
    let mut guest = Guest::new(1);
    let mut driver = guest.driver(0);
    let memory = Arc::clone(driver.memory());
    let table = FREE + 0x1000;
    let head = guest.offer_table(0, table, 3);
    let chain = driver.pop(0).unwrap().unwrap();
    let (readable, writable) = Buffers::of(&memory, chain.clone()).unwrap();
    assert_eq!((readable.len(), writable.len()), (0, 3));
    let most = u16::try_from(BUFFERS).unwrap();
    let other = guest.offer_table(0, table, most + 1);
    assert_ne!(other, head);
    guest.descriptor(0, head, table, u32::from(most + 1) * 16, 4, 0);
    assert!(Buffers::of(&memory, chain).is_none());
}
