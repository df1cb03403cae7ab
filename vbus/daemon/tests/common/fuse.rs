// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A file system whose files do what a test wants (FUSE): they are slow, fail, or do a part. And
//! mounts that end with the test.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::mount::{MountFlags, MountPropagationFlags, UnmountFlags};
use rustix::mount::{mount, mount_change, unmount};
use rustix::thread::{UnshareFlags, unshare_unsafe};
use std::ffi::CString;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// What is asked of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    Read,
    Write,
    Flush,
}

/// A request.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    pub what: What,
    /// The file, by its place among those of [`Files::mount`].
    pub file: usize,
    pub offset: u64,
    pub len: usize,
}

/// What the file system does with a request.
#[derive(Clone, Copy, Debug)]
pub enum Act {
    Serve,
    /// After this time. Everything else waits.
    Late(Duration),
    /// Nothing before [`Files::release`].
    Hold,
    Fail(Errno),
    /// At most this many bytes.
    Part(usize),
}

type Rule = Box<dyn FnMut(&Call) -> Act + Send>;

struct State {
    /// Names and content.
    files: Vec<(String, Vec<u8>)>,
    rule: Rule,
    /// Requests that wait: their numbers, and what they write.
    held: Vec<(u64, Call, Vec<u8>)>,
    /// Flushes so far.
    flushes: usize,
    ends: bool,
}

/// The file system. It ends with the value, and requests that it has not answered fail.
pub struct Files {
    mounted: Mounted,
    device: Arc<File>,
    state: Arc<Mutex<State>>,
    thread: Option<JoinHandle<()>>,
}

/// A mount that ends with the value.
pub struct Mounted(PathBuf);

impl Mounted {
    /// Mounts a file system there.
    pub fn new(path: &Path, kind: &str, data: &str) -> Self {
        let data = CString::new(data).unwrap();
        let flags = MountFlags::NOSUID | MountFlags::NODEV;
        mount("test", path, kind, flags, data.as_c_str()).unwrap();
        Mounted(path.to_path_buf())
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = unmount(&self.0, UnmountFlags::DETACH);
    }
}

/// Runs a test with mounts of its own.
pub fn with_mounts(body: impl FnOnce() + Send) {
    if !rustix::process::geteuid().is_root() {
        eprintln!("NOT TESTED: files of a host that is slow, full or broken. Only root can mount.");
        return;
    }
    thread::scope(|scope| {
        let thread = scope.spawn(|| {
            // SAFETY: the thread does not unshare its descriptors.
            unsafe { unshare_unsafe(UnshareFlags::NEWNS | UnshareFlags::FS) }.unwrap();
            let flags = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
            mount_change("/", flags).unwrap();
            body();
        });
        if let Err(panic) = thread.join() {
            resume_unwind(panic);
        }
    });
}

impl Files {
    /// Mounts a folder with these files, which serve everything at first.
    pub fn mount(path: &Path, files: &[(&str, usize)]) -> Self {
        let mut options = File::options();
        options.read(true).write(true);
        let device = options.custom_flags(libc::O_NONBLOCK).open("/dev/fuse");
        let device = Arc::new(device.unwrap());
        let data = format!(
            "fd={},rootmode=40000,user_id=0,group_id=0",
            device.as_raw_fd()
        );
        let mounted = Mounted::new(path, "fuse", &data);
        let files = files.iter();
        let state = Arc::new(Mutex::new(State {
            files: files
                .map(|(name, len)| (name.to_string(), vec![0; *len]))
                .collect(),
            rule: Box::new(|_| Act::Serve),
            held: Vec::new(),
            flushes: 0,
            ends: false,
        }));
        let (theirs, its) = (Arc::clone(&device), Arc::clone(&state));
        let thread = Some(thread::spawn(move || run(&theirs, &its)));
        Files {
            mounted,
            device,
            state,
            thread,
        }
    }

    /// What is done with requests from now on.
    pub fn rule(&self, rule: impl FnMut(&Call) -> Act + Send + 'static) {
        self.state.lock().unwrap().rule = Box::new(rule);
    }

    /// Requests that wait.
    pub fn held(&self) -> usize {
        self.state.lock().unwrap().held.len()
    }

    /// Flushes that were asked for.
    pub fn flushes(&self) -> usize {
        self.state.lock().unwrap().flushes
    }

    /// The content of a file.
    pub fn content(&self, file: usize) -> Vec<u8> {
        self.state.lock().unwrap().files[file].1.clone()
    }

    /// Serves the requests that wait, or fails them.
    pub fn release(&self, error: Option<Errno>) {
        let mut state = self.state.lock().unwrap();
        for (number, call, data) in std::mem::take(&mut state.held) {
            match error {
                Some(error) => refuse(&self.device, number, error),
                None => {
                    let bytes = state.serve(&call, call.len, &data);
                    answer(&self.device, number, 0, &bytes);
                }
            }
        }
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        if let Ok(mut state) = self.state.lock() {
            state.ends = true;
        }
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        // The last descriptor of the device goes with this value, and with it the file system.
    }
}

impl State {
    fn serve(&mut self, call: &Call, most: usize, data: &[u8]) -> Vec<u8> {
        let content = &mut self.files[call.file].1;
        let start = usize::try_from(call.offset).unwrap();
        let end = start + call.len.min(most);
        match call.what {
            What::Read => {
                let end = end.min(content.len());
                content[start.min(end)..end].to_vec()
            }
            What::Write => {
                if end > content.len() {
                    content.resize(end, 0);
                }
                content[start..end].copy_from_slice(&data[..end - start]);
                words(&[u32::try_from(end - start).unwrap(), 0])
            }
            What::Flush => Vec::new(),
        }
    }
}

fn words(all: &[u32]) -> Vec<u8> {
    all.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// Sends an answer: `fuse_out_header` and what follows it.
fn answer(device: &File, number: u64, error: i32, bytes: &[u8]) {
    let len = u32::try_from(16 + bytes.len()).unwrap();
    let mut all = words(&[len, error.cast_unsigned()]);
    all.extend(number.to_le_bytes());
    all.extend(bytes);
    // The request may have ended.
    let mut device = device;
    let _ = device.write(&all);
}

fn refuse(device: &File, number: u64, error: Errno) {
    answer(device, number, -error.raw_os_error(), &[]);
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
}

fn long(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
}

/// `fuse_attr` of a file, or of the folder.
fn attributes(node: u64, len: Option<usize>) -> Vec<u8> {
    let mut all = Vec::new();
    // Number, size, blocks and three times.
    for value in [node, len.unwrap_or(0) as u64, 0, 0, 0, 0] {
        all.extend(value.to_le_bytes());
    }
    let mode = if len.is_some() { 0o100_600 } else { 0o40_700 };
    // Their parts, mode, links, user, group, device, block size, flags.
    all.extend(words(&[0, 0, 0, mode, 1, 0, 0, 0, 4096, 0]));
    all
}

fn run(device: &File, state: &Mutex<State>) {
    let mut buffer = vec![0; 1 << 20];
    while !state.lock().unwrap().ends {
        let mut files = [PollFd::new(device, PollFlags::IN)];
        let patience = Timespec {
            tv_sec: 0,
            tv_nsec: 10_000_000,
        };
        let _ = poll(&mut files, Some(&patience));
        let mut from = device;
        match from.read(&mut buffer) {
            Ok(len) => message(device, &mut state.lock().unwrap(), &buffer[..len]),
            Err(error) if error.raw_os_error() == Some(libc::ENODEV) => return,
            // None has come, or it has ended.
            Err(_) => {}
        }
    }
}

/// A message of the kernel: `fuse_in_header` and what follows it.
fn message(device: &File, state: &mut State, bytes: &[u8]) {
    let (operation, number, node) = (word(bytes, 4), long(bytes, 8), long(bytes, 16));
    let body = &bytes[40..];
    let file = usize::try_from(node.saturating_sub(2)).unwrap();
    let say = |bytes: &[u8]| answer(device, number, 0, bytes);
    let of = |file: usize| Some(state.files[file].1.len());
    let (what, offset, len, data) = match operation {
        // LOOKUP: two numbers, two times and their parts, attributes. Nothing is kept.
        1 => {
            let name = body.strip_suffix(&[0]).unwrap();
            let found = state.files.iter().position(|one| one.0.as_bytes() == name);
            let Some(file) = found else {
                return refuse(device, number, Errno::NOENT);
            };
            let node = file as u64 + 2;
            let mut all = node.to_le_bytes().to_vec();
            all.extend([0; 32]);
            all.extend(attributes(node, of(file)));
            return say(&all);
        }
        // GETATTR, SETATTR: a time and its part, attributes.
        3 | 4 => {
            let len = if node == 1 { None } else { of(file) };
            return say(&[vec![0; 16], attributes(node, len)].concat());
        }
        // OPEN: no number, FOPEN_DIRECT_IO, so that each request comes here; OPENDIR.
        14 => return say(&words(&[0, 0, 1, 0])),
        27 => return say(&[0; 16]),
        // RELEASE, RELEASEDIR.
        18 | 29 => return say(&[]),
        // INIT: 7.31; of the rest, writes of 128 KiB.
        26 => {
            let mut all = words(&[7, 31, 0, 0, 0, 128 << 10, 1]);
            all.extend([0; 36]);
            return say(&all);
        }
        // FORGET, INTERRUPT, BATCH_FORGET have no answer.
        2 | 36 | 42 => return,
        // READ, WRITE, FSYNC.
        15 => (What::Read, long(body, 8), word(body, 16), &[][..]),
        16 => (What::Write, long(body, 8), word(body, 16), &body[40..]),
        20 => (What::Flush, 0, 0, &[][..]),
        _ => return refuse(device, number, Errno::NOSYS),
    };
    let call = Call {
        what,
        file,
        offset,
        len: len as usize,
    };
    state.flushes += usize::from(what == What::Flush);
    let mut most = call.len;
    match (state.rule)(&call) {
        Act::Serve => {}
        Act::Late(time) => thread::sleep(time),
        Act::Hold => return state.held.push((number, call, data.to_vec())),
        Act::Fail(error) => return refuse(device, number, error),
        Act::Part(bytes) => most = bytes,
    }
    let bytes = state.serve(&call, most, data);
    say(&bytes);
}
