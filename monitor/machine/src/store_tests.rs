// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Machines in a folder of their own.

use super::*;
use crate::heuristic::Heuristic;
use crate::restart::Restart;
use crate::spec::{CardAttributes, Init, Net, RomLayer, Word};

fn store() -> (tempfile::TempDir, Store) {
    let folder = tempfile::tempdir().unwrap();
    let store = Store {
        folder: folder.path().join("machines"),
    };
    (folder, store)
}

fn spec() -> Spec {
    Spec {
        kernel: Some("/k".into()),
        initrd: None,
        append: vec!["x".to_string()],
        hypervisor: crate::spec::Hypervisor::Process,
        cpus: 2,
        memory_mib: 256,
        spaces: None,
        volumes: Vec::new(),
        rootfs: None,
        init: Init::Auto,
        disks: Vec::new(),
        net: Net::None,
        card: CardAttributes {
            poll_us: Some(0),
            kick_us: None,
        },
        bus: None,
        publish: Vec::new(),
        metrics: None,
        consoles: Vec::new(),
        debuggable: false,
        stats: false,
        stop_signal: Some(2),
        layer: Some(RomLayer::Native),
        restart: Restart::OnFailure(Some(3)),
        timeout: Some(1),
        command: vec![Word("true".into())],
        env: vec![(Word("A".into()), Word("b".into()))],
        workdir: None,
        user: None,
        interactive: false,
        tty: false,
        without: vec![Heuristic::AckDelay],
    }
}

#[test]
fn a_life() {
    let (_folder, store) = store();
    assert!(store.all().unwrap().is_empty());
    let machine = store.create(Some("one"), &spec()).unwrap();
    assert_eq!(machine.spec().unwrap(), spec());
    assert_eq!(machine.state().unwrap(), State::Created);
    assert!(
        store
            .create(Some("one"), &spec())
            .unwrap_err()
            .to_string()
            .contains("there is a machine one")
    );
    let mut hold = machine.hold().unwrap();
    assert_eq!(
        machine.state().unwrap(),
        State::Running {
            pid: std::process::id()
        }
    );
    assert!(
        machine
            .hold()
            .unwrap_err()
            .to_string()
            .contains("is running")
    );
    assert_eq!(machine.lives().unwrap(), None);
    for restarts in [0, 7] {
        hold.set_monitor(12 + i32::try_from(restarts).unwrap(), restarts)
            .unwrap();
        let pid = 12 + restarts;
        assert_eq!(machine.state().unwrap(), State::Running { pid });
        let restarter = std::process::id();
        let lives = Lives {
            restarter,
            restarts,
        };
        assert_eq!(machine.lives().unwrap(), Some(lives));
    }
    let record = machine.folder().join(ENDED);
    let reserved = fs::metadata(&record).unwrap().len();
    hold.set_ended(&Ended { code: 255 }).unwrap();
    assert_eq!(fs::metadata(&record).unwrap().len(), reserved);
    drop(hold);
    assert_eq!(machine.state().unwrap(), State::Exited(255));
    // A monitor that is killed says nothing.
    drop(machine.hold().unwrap());
    assert_eq!(machine.state().unwrap(), State::Died);
    // An earlier version's record has no spaces.
    fs::write(&record, r#"{"code":3}"#).unwrap();
    assert_eq!(machine.state().unwrap(), State::Exited(3));
    assert_eq!(store.create(None, &spec()).unwrap().name, "vm1");
    assert_eq!(store.all().unwrap().len(), 2);
    machine.remove().unwrap();
    assert!(
        store
            .find("one")
            .unwrap_err()
            .to_string()
            .contains("no machine one")
    );
}

#[test]
fn what_was_killed_is_no_machine() {
    let (_folder, store) = store();
    store.create(Some("x"), &spec()).unwrap();
    for left in [
        ".new-1",
        ".of-somebody",
        &format!("{DRAFT}{}", std::process::id()),
    ] {
        fs::create_dir(store.folder.join(left)).unwrap();
    }
    for old in [".new-1", ".of-somebody"] {
        let old = fs::File::open(store.folder.join(old)).unwrap();
        old.set_modified(std::time::SystemTime::now() - 2 * LEFT_BEHIND)
            .unwrap();
    }
    store.create(Some("y"), &spec()).unwrap();
    let names: Vec<_> = store
        .all()
        .unwrap()
        .into_iter()
        .map(|machine| machine.name)
        .collect();
    assert_eq!(names, ["x", "y"]);
    let folders = fs::read_dir(&store.folder).unwrap().count();
    assert_eq!(folders, 3, "what is not ours stays");
}

#[test]
fn names_are_names() {
    let (_folder, store) = store();
    for name in ["", ".", "..", "-x", "a/b", "a b", "\u{e4}", &"x".repeat(65)] {
        assert!(store.create(Some(name), &spec()).is_err(), "{name}");
        assert!(store.find(name).is_err(), "{name}");
    }
}

#[test]
fn damage_is_told() {
    let (_folder, store) = store();
    let machine = store.create(Some("x"), &spec()).unwrap();
    fs::write(machine.folder().join("spec.json"), "{}").unwrap();
    assert!(format!("{:#}", machine.spec().unwrap_err()).contains("spec.json is damaged"));
    fs::remove_file(machine.folder().join("spec.json")).unwrap();
    assert!(
        machine
            .spec()
            .unwrap_err()
            .to_string()
            .contains("never completed")
    );
}

#[test]
fn only_text_is_kept() {
    use std::os::unix::ffi::OsStrExt;
    let (_folder, store) = store();
    let mut spec = spec();
    spec.command
        .push(Word(OsStr::from_bytes(&[0xff]).to_os_string()));
    assert!(format!("{:#}", store.create(Some("x"), &spec).unwrap_err()).contains("not UTF-8"));
    assert!(store.all().unwrap().is_empty());
}

use std::ffi::OsStr;

/// The file of the lock is empty for a moment after a monitor has taken the lock, and has no id of
/// an earlier monitor.
#[test]
fn the_process_id_of_a_monitor_is_waited_for() {
    let (_folder, store) = store();
    let machine = store.create(Some("one"), &spec()).unwrap();
    let path = machine.folder().join("lock");
    machine.forget_monitor().unwrap();
    fs::write(&path, "99        ").unwrap();
    // As before each start.
    machine.forget_monitor().unwrap();
    let mut lock = OpenOptions::new().write(true).open(path).unwrap();
    flock(&lock, FlockOperation::LockExclusive).unwrap();
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| machine.state());
        std::thread::sleep(Duration::from_millis(50));
        lock.write_all(b"12        ").unwrap();
        assert_eq!(reader.join().unwrap().unwrap(), State::Running { pid: 12 });
    });
    // Another command starts the machine, too.
    machine.forget_monitor().unwrap();
    assert_eq!(machine.state().unwrap(), State::Running { pid: 12 });
    // Its monitor ends before it has written one.
    lock.set_len(0).unwrap();
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| machine.state());
        std::thread::sleep(Duration::from_millis(50));
        drop(lock);
        assert_eq!(reader.join().unwrap().unwrap(), State::Died);
    });
}

/// A command that has waited for its turn learns that the machine is no more.
#[test]
fn a_turn_comes_to_nothing_after_a_removal() {
    let (_folder, store) = store();
    let machine = store.create(Some("one"), &spec()).unwrap();
    let first = machine.turn().unwrap();
    std::thread::scope(|scope| {
        let second = scope.spawn(|| machine.turn());
        // So that it most probably waits. If it comes later, its answer is the same.
        std::thread::sleep(Duration::from_millis(50));
        machine.remove().unwrap();
        drop(first);
        let error = second.join().unwrap().unwrap_err();
        assert!(error.to_string().contains("removed meanwhile"), "{error}");
    });
    // Another one of the same name is another one.
    let machine = store.create(Some("one"), &spec()).unwrap();
    let _turn = machine.turn().unwrap();
}
