// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Images of registries (OCI distribution specification).
//!
//! Credentials come from `docker login` or `podman login`; without them requests are anonymous. A
//! registry on this host's loopback is spoken to by plain HTTP, as docker does. Every other
//! registry is spoken to by HTTPS, with the host's certificates.

use super::archive::DOCUMENT;
use super::http::{Http, Login};
use super::{Documents, digest};
use anyhow::{Context, anyhow, bail};
use docker_credential::{DockerCredential, get_credential, get_podman_credential};
use oci_spec::distribution::Reference;
use oci_spec::image::Descriptor;
use paravane_user_io::signals::{Interrupted, Signals};
use sha2::{Digest, Sha256};
use std::future::Future;
use std::io::Write;
use std::net::IpAddr;
use std::time::Duration;
use tokio::runtime::{self, Runtime};

/// Interval between two checks for a signal.
const LOOK: Duration = Duration::from_millis(100);

/// A registry, for one image.
pub struct Registry<'a> {
    runtime: Runtime,
    http: Http<'a>,
    reference: &'a Reference,
    signals: &'a Signals,
}

impl<'a> Registry<'a> {
    /// Creates a client. Sends nothing yet. A signal in `signals` ends each operation.
    pub fn new(reference: &'a Reference, signals: &'a Signals) -> anyhow::Result<Self> {
        let registry = reference.resolve_registry();
        let runtime = runtime::Builder::new_current_thread().enable_all().build();
        Ok(Registry {
            runtime: runtime.context("cannot create an event loop")?,
            http: Http::new(reference, is_loopback(registry), login(registry)?)?,
            reference,
            signals,
        })
    }

    /// The manifest or index that the reference names.
    pub fn named(&self) -> anyhow::Result<Vec<u8>> {
        let Some(wanted) = self.reference.digest() else {
            let tag = self.reference.tag().unwrap_or("latest");
            return self.wait(self.http.manifest(tag));
        };
        digest::digits(wanted)?;
        let bytes = self.wait(self.http.manifest(wanted))?;
        if digest::of(&bytes) != wanted {
            return Err(damaged());
        }
        Ok(bytes)
    }

    /// Writes a blob of at most `size` bytes. On success the bytes have this digest.
    pub fn blob(&self, digest: &str, size: u64, into: &mut impl Write) -> anyhow::Result<()> {
        self.wait(async {
            let mut response = self.http.blob(digest).await?;
            let mut sum = Sha256::new();
            let mut left = size;
            while let Some(piece) = self.http.piece(&mut response).await? {
                let piece = piece.as_ref();
                let rest = left.checked_sub(piece.len() as u64);
                left = rest.context("the registry sends more bytes than the manifest states")?;
                sum.update(piece);
                into.write_all(piece)?;
            }
            if digest::text(sum) != digest {
                return Err(damaged());
            }
            Ok(())
        })
    }

    /// Waits for a result, or for a signal.
    fn wait<T>(&self, what: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
        let asked = async {
            loop {
                if let Some(signal) = self.signals.pending() {
                    return signal;
                }
                tokio::time::sleep(LOOK).await;
            }
        };
        self.runtime.block_on(async {
            tokio::select! {
                done = what => done,
                signal = asked => Err(Interrupted(signal).into()),
            }
        })
    }
}

impl Documents for Registry<'_> {
    fn manifest(&self, descriptor: &Descriptor) -> anyhow::Result<Vec<u8>> {
        self.wait(self.http.manifest(descriptor.digest().as_ref()))
    }

    fn configuration(&self, descriptor: &Descriptor) -> anyhow::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.blob(descriptor.digest().as_ref(), DOCUMENT, &mut bytes)?;
        Ok(bytes)
    }
}

fn damaged() -> anyhow::Error {
    anyhow!("what the registry sends is damaged: its digest does not match")
}

/// The user's credentials for a registry.
fn login(registry: &str) -> anyhow::Result<Login> {
    for found in [get_podman_credential(registry), get_credential(registry)] {
        match found {
            Ok(DockerCredential::UsernamePassword(user, password)) => {
                return Ok(Some((user, password)));
            }
            Ok(DockerCredential::IdentityToken(_)) => {
                bail!(
                    "the credentials for {registry} are an identity token: log in with a password \
                     or access token"
                )
            }
            Err(error) => tracing::debug!("credentials for {registry}: {error}"),
        }
    }
    Ok(None)
}

/// Reports whether a registry (a host, optionally with a port) is on this host's loopback.
fn is_loopback(registry: &str) -> bool {
    let host = match registry.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
        _ => registry,
    };
    let host = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost"
        || host
            .parse()
            .is_ok_and(|address: IpAddr| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_host_is_spoken_to_without_encryption() {
        for own in [
            "localhost",
            "localhost:5000",
            "127.0.0.1:80",
            "127.9.9.9",
            "[::1]:5000",
        ] {
            assert!(is_loopback(own), "{own}");
        }
        for other in [
            "localhost.example:5000",
            "example.com",
            "10.0.0.1:5000",
            "[::2]:5000",
            "128.0.0.1",
        ] {
            assert!(!is_loopback(other), "{other}");
        }
    }
}
