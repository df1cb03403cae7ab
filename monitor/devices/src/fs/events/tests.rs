// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Events of the host.

use super::*;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

fn part(kind: u8, name: &str) -> Vec<u8> {
    part_with(kind, &[5, 6], name)
}

fn part_with(kind: u8, handle: &[u8], name: &str) -> Vec<u8> {
    let mut part = vec![kind, 0, 0, 0];
    part.extend([1; 8]);
    part.extend(u32::try_from(handle.len()).unwrap().to_ne_bytes());
    part.extend(9u32.to_ne_bytes());
    part.extend(handle);
    part.extend(name.as_bytes());
    part.push(0);
    part.resize(part.len().next_multiple_of(4), 0);
    part[2] = part.len().try_into().unwrap();
    part
}

fn event(mask: u64, pid: i32, parts: &[Vec<u8>]) -> Vec<u8> {
    let parts = parts.concat();
    let length = u32::try_from(METADATA + parts.len()).unwrap();
    let mut event = length.to_ne_bytes().to_vec();
    event.extend([3, 0, METADATA.try_into().unwrap(), 0]);
    event.extend(mask.to_ne_bytes());
    event.extend((-1i32).to_ne_bytes());
    event.extend(pid.to_ne_bytes());
    event.extend(parts);
    event
}

#[test]
fn events_are_those_of_the_kernel() {
    let bytes = [
        event(CREATE | MODIFY, 7, &[part(PLACE, "new")]),
        event(ATTRIB | ONDIR, 8, &[part(PLACE, ".")]),
        event(RENAME, 7, &[part(OLD_PLACE, "a"), part(NEW_PLACE, "b")]),
        event(RENAME, 7, &[part(OLD_PLACE, "a")]),
        event(0x4000, 0, &[]),
    ];
    let all = parse(&bytes.concat(), 7).unwrap();
    let name = |at: usize| all[at].name.as_deref().map(<[u8]>::to_vec);
    assert_eq!(all[0].what, ReadFlags::CREATE | ReadFlags::MODIFY);
    assert_eq!((all[0].ours, name(0)), (true, Some(b"new".to_vec())));
    let handle = [&[1; 8][..], &9u32.to_ne_bytes(), &[5, 6]].concat();
    assert_eq!(all[0].folder, Some(Key::Handle(handle)));
    assert_eq!((all[1].ours, name(1)), (false, None));
    assert_eq!(
        (all[2].what, name(2)),
        (ReadFlags::MOVED_FROM, Some(b"a".to_vec()))
    );
    assert_eq!(
        (all[3].what, name(3)),
        (ReadFlags::MOVED_TO, Some(b"b".to_vec()))
    );
    assert!(all[2].cookie == all[3].cookie && all[2].cookie != ALONE);
    assert_eq!((all[4].what, all[4].cookie), (ReadFlags::MOVED_FROM, ALONE));
    assert_eq!(
        (all[5].what, &all[5].folder),
        (ReadFlags::QUEUE_OVERFLOW, &None)
    );
    assert_eq!(all.len(), 6);
    // Whatever comes, nothing is read beyond it.
    let bytes = bytes.concat();
    for end in 0..bytes.len() {
        let _ = parse(&bytes[..end], 7);
    }
    for at in 0..bytes.len() {
        let mut bytes = bytes.clone();
        bytes[at] = !bytes[at];
        let _ = parse(&bytes, 7);
    }
}

/// The kernel reports a change all the same if the file system gives no handle.
#[test]
fn an_event_without_a_handle_is_somewhere() {
    let nowhere = part_with(PLACE, &[], "a");
    let bytes = [
        event(MODIFY, 8, &[]),
        event(CREATE, 8, &[nowhere]),
        event(RENAME, 8, &[]),
        event(
            RENAME,
            8,
            &[part_with(OLD_PLACE, &[], "a"), part(NEW_PLACE, "b")],
        ),
    ];
    let all = parse(&bytes.concat(), 7).unwrap();
    let seen: Vec<_> = all
        .iter()
        .map(|event| (event.what, event.folder.is_some()))
        .collect();
    let expected = [
        (ReadFlags::MODIFY, false),
        (ReadFlags::CREATE, false),
        (ReadFlags::MOVED_FROM, false),
        (ReadFlags::MOVED_FROM, false),
        (ReadFlags::MOVED_TO, true),
    ];
    assert_eq!(seen, expected);
}

fn shell(folder: &Path, command: &str) {
    let mut shell = Command::new("sh");
    let done = shell.args(["-c", command]).current_dir(folder).status();
    assert!(done.unwrap().success());
}

/// This holds also when both write to the same file in turn, which inotify reports as one event.
#[test]
fn changes_of_this_process_are_told_apart() {
    let folder = tempfile::tempdir().unwrap();
    let open = fs::File::open(folder.path()).unwrap();
    let events = Events::new(open.as_fd()).unwrap();
    if !events.know_ours() {
        crate::skip::skip("the host has no fanotify for this folder");
        return;
    }
    let key = events.add(open.as_raw_fd()).unwrap();
    assert_eq!(events.add(open.as_raw_fd()).unwrap(), key);
    let file = folder.path().join("f");
    fs::write(&file, "x").unwrap();
    shell(folder.path(), "echo y >>f");
    fs::write(&file, "z").unwrap();
    let mode = fs::Permissions::from_mode(0o700);
    fs::set_permissions(folder.path(), mode).unwrap();
    shell(folder.path(), "mv f g");
    let mut all = Vec::new();
    let mut buffer = Vec::new();
    loop {
        let some = events.read(&mut buffer).unwrap();
        if some.is_empty() {
            break;
        }
        all.extend(some);
    }
    assert!(all.iter().all(|event| event.folder.as_ref() == Some(&key)));
    let seen = |what, name: Option<&[u8]>, ours| {
        let count = all.iter().filter(|event| {
            event.what.contains(what) && event.name.as_deref() == name && event.ours == ours
        });
        count.count()
    };
    let (f, g) = (Some(&b"f"[..]), Some(&b"g"[..]));
    assert_eq!(seen(ReadFlags::CREATE, f, true), 1);
    assert_eq!(seen(ReadFlags::MODIFY, f, false), 1, "{all:?}");
    assert_eq!(seen(ReadFlags::ATTRIB, None, true), 1);
    assert_eq!(seen(ReadFlags::MOVED_FROM, f, false), 1);
    assert_eq!(seen(ReadFlags::MOVED_TO, g, false), 1);
    events.remove(&key, |end| end(open.as_raw_fd())).unwrap();
    events.remove(&key, |end| end(open.as_raw_fd())).unwrap();
    fs::write(&file, "x").unwrap();
    assert!(events.read(&mut buffer).unwrap().is_empty());
}
