// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An image registry on the loopback (OCI distribution specification, the pull part), and images
//! for it.

#![allow(clippy::unwrap_used)] // A failed setup fails the test.

use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The user and password of a registry that needs a login: `user`, `secret`.
pub const BASIC: &str = "dXNlcjpzZWNyZXQ=";
/// Larger than any document.
pub const LARGE: usize = 10_000;
const TOKEN: &str = "let-me-in";
/// More bytes than a client that checks sizes reads.
const FAR: usize = 256 << 20;

const INDEX: &str = "application/vnd.oci.image.index.v1+json";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";

/// What the registry does wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The contents of these blobs do not match their digest.
    Damaged,
    /// Blobs of more than [`LARGE`] bytes continue after their end.
    Longer,
    /// Blobs end early.
    Truncated,
    /// Blobs of more than [`LARGE`] bytes stop in the middle, for ever.
    Stuck,
    /// Every answer has this status.
    Status(u16),
    /// Answers to paths that contain this have this status and no end, or a very distant one.
    Endless(&'static str, u16),
}

#[derive(Debug, Default)]
struct State {
    /// By the path after `/v2/`: bytes and type.
    files: HashMap<String, (Vec<u8>, &'static str)>,
    fault: Option<Fault>,
    login: bool,
    /// Paths that were requested.
    asked: Vec<String>,
    /// Bytes sent of answers without end.
    sent: usize,
}

/// A registry. It ends with the process of the test.
#[derive(Clone, Debug)]
pub struct Registry {
    address: SocketAddr,
    state: Arc<Mutex<State>>,
}

impl Registry {
    /// Starts a registry without images.
    ///
    /// # Panics
    /// When it cannot listen.
    #[must_use]
    #[allow(clippy::new_without_default)] // It is a server.
    pub fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let registry = Registry {
            address: listener.local_addr().unwrap(),
            state: Arc::default(),
        };
        let server = registry.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let server = server.clone();
                // If the client hangs up, the test checks why.
                std::thread::spawn(move || drop(server.serve(&stream)));
            }
        });
        registry
    }

    fn state<T>(&self, with: impl FnOnce(&mut State) -> T) -> T {
        with(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The full name of an image in the registry.
    #[must_use]
    pub fn name(&self, image: &str) -> String {
        format!("{}/{image}", self.address)
    }

    /// Sets what the registry does wrong from now on.
    pub fn fault(&self, fault: Option<Fault>) {
        self.state(|state| state.fault = fault);
    }

    /// From now on the registry needs a login.
    pub fn wants_login(&self) {
        self.state(|state| state.login = true);
    }

    /// The requested paths that contain this, since the last call.
    #[must_use]
    pub fn asked(&self, part: &str) -> usize {
        self.state(|state| std::mem::take(&mut state.asked))
            .iter()
            .filter(|path| path.contains(part))
            .count()
    }

    /// Bytes of answers without end that clients have read since the last call.
    #[must_use]
    pub fn sent(&self) -> usize {
        self.state(|state| std::mem::take(&mut state.sent))
    }

    /// Adds an image under a name and tag. `layers` are the stored layers, each with the digest of
    /// its archive. Returns the digest of the image.
    pub fn add(
        &self,
        name: &str,
        tag: &str,
        layers: &[(Vec<u8>, String)],
        config: &Value,
    ) -> String {
        let diff_ids: Vec<&String> = layers.iter().map(|(_, sum)| sum).collect();
        let configuration = json!({
            "architecture": "amd64", "os": "linux", "config": config,
            "rootfs": { "type": "layers", "diff_ids": diff_ids },
        });
        let configuration = self.blob(name, configuration.to_string().into_bytes());
        let layers: Vec<Value> = layers
            .iter()
            .map(|(bytes, _)| self.blob(name, bytes.clone()))
            .collect();
        let manifest = json!({
            "schemaVersion": 2, "mediaType": MANIFEST, "config": configuration, "layers": layers,
        });
        let manifest = self.manifest(name, None, &manifest, MANIFEST);
        let entry = |digest: &str, architecture: &str| {
            json!({
                "mediaType": MANIFEST, "digest": digest, "size": 1,
                "platform": { "architecture": architecture, "os": "linux" },
            })
        };
        let other = sum(b"another machine's");
        let entries = [entry(&other, "arm64"), entry(&manifest, "amd64")];
        let index = json!({ "schemaVersion": 2, "mediaType": INDEX, "manifests": entries });
        self.manifest(name, Some(tag), &index, INDEX)
    }

    /// Adds a blob and returns its descriptor.
    fn blob(&self, name: &str, bytes: Vec<u8>) -> Value {
        let (digest, size) = (sum(&bytes), bytes.len());
        let path = format!("{name}/blobs/{digest}");
        self.state(|state| {
            state
                .files
                .insert(path, (bytes, "application/octet-stream"))
        });
        json!({
            "mediaType": "application/vnd.oci.image.layer.v1.tar+gzip",
            "digest": digest, "size": size,
        })
    }

    fn manifest(
        &self,
        name: &str,
        tag: Option<&str>,
        document: &Value,
        kind: &'static str,
    ) -> String {
        let bytes = document.to_string().into_bytes();
        let digest = sum(&bytes);
        self.state(|state| {
            for reference in tag.into_iter().chain([digest.as_str()]) {
                let path = format!("{name}/manifests/{reference}");
                state.files.insert(path, (bytes.clone(), kind));
            }
        });
        digest
    }

    fn serve(&self, stream: &TcpStream) -> std::io::Result<()> {
        let mut lines = BufReader::new(stream).lines();
        while let Some(request) = lines.next() {
            let request = request?;
            let path = request.split(' ').nth(1).unwrap_or_default().to_string();
            let mut authorization = String::new();
            for header in lines.by_ref() {
                let header = header?;
                if header.is_empty() {
                    break;
                }
                if let Some((name, value)) = header.split_once(": ") {
                    if name.eq_ignore_ascii_case("authorization") {
                        authorization = value.to_string();
                    }
                }
            }
            if !self.answer(stream, &path, &authorization)? {
                break;
            }
        }
        Ok(())
    }

    /// False: close the connection.
    fn answer(
        &self,
        mut stream: &TcpStream,
        path: &str,
        authorization: &str,
    ) -> std::io::Result<bool> {
        let own = path.strip_prefix("/v2/");
        let (file, fault, login) = self.state(|state| {
            state.asked.push(path.to_string());
            let file = own.and_then(|own| state.files.get(own).cloned());
            (file, state.fault.clone(), state.login)
        });
        let mut answer = |status: u16, headers: &str, body: &[u8]| {
            let length = body.len();
            let head = format!("HTTP/1.1 {status} x\r\n{headers}content-length: {length}\r\n\r\n");
            stream.write_all(head.as_bytes())?;
            stream.write_all(body)?;
            Ok(true)
        };
        if let Some(Fault::Endless(part, status)) = fault {
            if path.contains(part) {
                stream.write_all(
                    format!("HTTP/1.1 {status} x\r\nconnection: close\r\n\r\n").as_bytes(),
                )?;
                // White space, which a JSON parser skips.
                let blank = vec![b' '; 64 << 10];
                for _ in 0..FAR / blank.len() {
                    stream.write_all(&blank)?;
                    self.state(|state| state.sent += blank.len());
                }
                return Ok(false);
            }
        }
        if path.starts_with("/token") {
            return if authorization == format!("Basic {BASIC}") {
                answer(200, "", json!({ "token": TOKEN }).to_string().as_bytes())
            } else {
                answer(401, "", b"{}")
            };
        }
        if let Some(Fault::Status(status)) = fault {
            return answer(status, "", b"{}");
        }
        if login && authorization != format!("Bearer {TOKEN}") {
            let realm = format!(
                "Bearer realm=\"http://{}/token\",service=\"test\"",
                self.address
            );
            return answer(401, &format!("www-authenticate: {realm}\r\n"), b"{}");
        }
        let Some((mut bytes, kind)) = file else {
            return match own {
                Some("") => answer(200, "", b"{}"),
                _ => answer(
                    404,
                    "",
                    br#"{"errors":[{"code":"MANIFEST_UNKNOWN","message":"none"}]}"#,
                ),
            };
        };
        let kind = format!("content-type: {kind}\r\n");
        let half = bytes.len() / 2;
        let blob = path.contains("/blobs/");
        match fault.filter(|fault| {
            blob && (![Fault::Stuck, Fault::Longer].contains(fault) || bytes.len() > LARGE)
        }) {
            Some(Fault::Truncated | Fault::Stuck) => {
                let head = format!(
                    "HTTP/1.1 200 x\r\n{kind}content-length: {}\r\n\r\n",
                    bytes.len()
                );
                stream.write_all(head.as_bytes())?;
                stream.write_all(bytes.get(..half).unwrap_or_default())?;
                if self.state(|state| state.fault == Some(Fault::Stuck)) {
                    std::thread::sleep(Duration::from_secs(600));
                }
                Ok(false)
            }
            fault => {
                if fault == Some(Fault::Damaged) {
                    if let Some(byte) = bytes.get_mut(half) {
                        *byte ^= 1;
                    }
                }
                if fault == Some(Fault::Longer) {
                    bytes.extend([0; 4096]);
                }
                answer(200, &kind, &bytes)
            }
        }
    }
}

/// A digest in the form of images.
#[must_use]
pub fn sum(bytes: &[u8]) -> String {
    let mut text = "sha256:".to_string();
    for byte in Sha256::digest(bytes) {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// A layer that a script makes in an empty folder: compressed, with the digest of the archive.
///
/// # Panics
/// When it cannot be made.
#[must_use]
pub fn layer(script: &str) -> (Vec<u8>, String) {
    let folder = tempfile::tempdir().unwrap();
    let run = |folder: &Path, script: &str| {
        let mut command = Command::new("sh");
        command
            .args(["-e", "-c", script])
            .current_dir(folder)
            .stdin(Stdio::null());
        let output = command.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        output.stdout
    };
    run(folder.path(), script);
    let archive = run(folder.path(), "tar --sort=name --mtime=@0 -cf - .");
    let stored = run(
        folder.path(),
        "tar --sort=name --mtime=@0 -cf - . | gzip -n -1",
    );
    (stored, sum(&archive))
}
