// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Images of registries (OCI distribution specification), by the crate oci-client.
//!
//! Who we are to a registry is what `docker login` or `podman login` has written down; without that, nobody. A registry on this host's
//! loopback is spoken to by plain HTTP, as docker does; every other by HTTPS, with the host's certificates.

use super::archive::DOCUMENT;
use super::{Descriptor, Documents};
use crate::signals::{Interrupted, Signals};
use crate::text;
use anyhow::{Context, anyhow, bail};
use docker_credential::{DockerCredential, get_credential, get_podman_credential};
use futures_util::TryStreamExt;
use oci_client::Reference;
use oci_client::client::{Client, ClientConfig, ClientProtocol};
use oci_client::errors::{OciDistributionError, OciErrorCode};
use oci_client::manifest::{
    IMAGE_MANIFEST_LIST_MEDIA_TYPE, IMAGE_MANIFEST_MEDIA_TYPE, OCI_IMAGE_INDEX_MEDIA_TYPE, OCI_IMAGE_MEDIA_TYPE,
};
use oci_client::secrets::RegistryAuth;
use std::error::Error;
use std::future::Future;
use std::io::{self, Write};
use std::net::IpAddr;
use std::time::Duration;
use tokio::runtime::{self, Runtime};

/// For a connection, and for each next piece of an answer.
const CONNECT: Duration = Duration::from_secs(20);
const ANSWER: Duration = Duration::from_secs(60);

/// Between two looks whether we are asked to end.
const LOOK: Duration = Duration::from_millis(100);

/// What manifests and indexes are called.
const ACCEPTED: [&str; 4] = [
    OCI_IMAGE_INDEX_MEDIA_TYPE,
    IMAGE_MANIFEST_LIST_MEDIA_TYPE,
    OCI_IMAGE_MEDIA_TYPE,
    IMAGE_MANIFEST_MEDIA_TYPE,
];

/// A registry, for one image.
pub struct Registry<'a> {
    runtime: Runtime,
    client: Client,
    auth: RegistryAuth,
    reference: &'a Reference,
    signals: &'a Signals,
}

impl<'a> Registry<'a> {
    /// Says nothing to it yet. When `signals` says so, whatever is under way ends.
    pub fn new(reference: &'a Reference, signals: &'a Signals) -> anyhow::Result<Self> {
        // Fails when there is one already, which is this one.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let registry = reference.resolve_registry();
        let protocol = match is_loopback(registry) {
            true => ClientProtocol::HttpsExcept(vec![registry.to_string()]),
            false => ClientProtocol::Https,
        };
        let config = ClientConfig {
            protocol,
            connect_timeout: Some(CONNECT),
            read_timeout: Some(ANSWER),
            user_agent: concat!("paravane/", env!("CARGO_PKG_VERSION")),
            ..ClientConfig::default()
        };
        let client = Client::try_from(config)
            .map_err(|error| told(&error))
            .context("no HTTPS on this host: has it the certificates (ca-certificates)?")?;
        let runtime = runtime::Builder::new_current_thread().enable_all().build();
        Ok(Registry {
            runtime: runtime.context("cannot make a loop of events")?,
            client,
            auth: auth(registry)?,
            reference,
            signals,
        })
    }

    /// The manifest or index that the reference means.
    pub fn named(&self) -> anyhow::Result<Vec<u8>> {
        self.pull_manifest(self.reference)
    }

    fn pull_manifest(&self, reference: &Reference) -> anyhow::Result<Vec<u8>> {
        let (bytes, _) = self.wait(async {
            let pulled = self.client.pull_manifest_raw(reference, &self.auth, &ACCEPTED).await;
            pulled.map_err(|error| self.explain(&error))
        })?;
        if bytes.len() as u64 > DOCUMENT {
            bail!("a manifest of more than {} MiB", DOCUMENT >> 20);
        }
        Ok(bytes.to_vec())
    }

    /// A blob's bytes, which have its digest when this succeeds, and are no more than `size`.
    pub fn blob(&self, digest: &str, size: u64, into: &mut impl Write) -> anyhow::Result<()> {
        self.wait(async {
            self.client
                .store_auth_if_needed(self.reference.resolve_registry(), &self.auth)
                .await;
            let stream = self.client.pull_blob_stream(self.reference, digest).await;
            let mut stream = stream.map_err(|error| self.explain(&error))?;
            let mut left = size;
            while let Some(piece) = stream.try_next().await.map_err(|error| self.broken(&error))? {
                let rest = left.checked_sub(piece.len() as u64);
                left = rest.context("the registry sends more than the manifest says")?;
                into.write_all(&piece)?;
            }
            Ok(())
        })
    }

    /// Waits for that, or until we are asked to end.
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

    /// What went wrong, in words for who asked for the image.
    fn explain(&self, error: &OciDistributionError) -> anyhow::Error {
        let registry = self.reference.resolve_registry();
        let refused = || {
            anyhow!(
                "{registry} does not give it to us: is the name right? If it wants to know who asks: `docker login {registry}`"
            )
        };
        let nothing = || anyhow!("{registry} has no such image");
        match error {
            OciDistributionError::UnauthorizedError { .. } | OciDistributionError::AuthenticationFailure(_) => {
                refused()
            }
            OciDistributionError::RegistryError { envelope, .. } => match envelope.errors.first().map(|e| &e.code) {
                Some(OciErrorCode::Unauthorized | OciErrorCode::Denied) => refused(),
                Some(
                    OciErrorCode::ManifestUnknown
                    | OciErrorCode::NameUnknown
                    | OciErrorCode::NameInvalid
                    | OciErrorCode::NotFound
                    | OciErrorCode::BlobUnknown
                    | OciErrorCode::ManifestBlobUnknown,
                ) => nothing(),
                Some(OciErrorCode::Toomanyrequests) => anyhow!("{registry} takes no more requests from us for now"),
                _ => anyhow!("{registry}: {}", text::clean(error.to_string().as_bytes())),
            },
            OciDistributionError::ServerError { code: 404, .. } => nothing(),
            OciDistributionError::ServerError { code: 403, .. } => refused(),
            OciDistributionError::ServerError { code: 429, .. } => {
                anyhow!("{registry} takes no more requests from us for now")
            }
            OciDistributionError::ServerError { code, .. } => anyhow!("{registry} answers with HTTP status {code}"),
            OciDistributionError::DigestError(_) => damaged(),
            OciDistributionError::RequestError(inner) if inner.is_timeout() => anyhow!("{registry} does not answer"),
            OciDistributionError::RequestError(inner) if inner.is_connect() => {
                anyhow!("cannot reach {registry}: {}", root(inner))
            }
            OciDistributionError::RequestError(inner) => anyhow!("{registry}: {}", root(inner)),
            other => anyhow!("{registry}: {}", text::clean(other.to_string().as_bytes())),
        }
    }

    /// The same, in the middle of a blob.
    fn broken(&self, error: &io::Error) -> anyhow::Error {
        let inner = error.get_ref();
        if inner.is_some_and(|inner| inner.is::<oci_client::errors::DigestError>()) {
            return damaged();
        }
        let registry = self.reference.resolve_registry();
        let why = inner.map_or_else(|| error.to_string(), |inner| root(inner));
        anyhow!("the connection to {registry} broke: {why}")
    }
}

impl Documents for Registry<'_> {
    fn manifest(&self, descriptor: &Descriptor) -> anyhow::Result<Vec<u8>> {
        self.pull_manifest(&self.reference.clone_with_digest(descriptor.digest.clone()))
    }

    fn configuration(&self, descriptor: &Descriptor) -> anyhow::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.blob(&descriptor.digest, DOCUMENT, &mut bytes)?;
        Ok(bytes)
    }
}

fn damaged() -> anyhow::Error {
    anyhow!("what the registry sends is damaged: it has another digest")
}

fn told(error: &(dyn Error + 'static)) -> anyhow::Error {
    anyhow!("{}", root(error))
}

/// The innermost reason.
fn root(error: &(dyn Error + 'static)) -> String {
    let mut error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    text::clean(error.to_string().as_bytes())
}

/// Who we are to a registry.
fn auth(registry: &str) -> anyhow::Result<RegistryAuth> {
    for found in [get_podman_credential(registry), get_credential(registry)] {
        match found {
            Ok(DockerCredential::UsernamePassword(user, password)) => return Ok(RegistryAuth::Basic(user, password)),
            Ok(DockerCredential::IdentityToken(_)) => {
                bail!("the credentials for {registry} are an identity token: log in with a password or access token")
            }
            Err(error) => tracing::debug!("credentials for {registry}: {error}"),
        }
    }
    Ok(RegistryAuth::Anonymous)
}

/// Whether a registry (a host, may be with a port) is this host's own.
fn is_loopback(registry: &str) -> bool {
    let host = match registry.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
        _ => registry,
    };
    let host = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || host.parse().is_ok_and(|address: IpAddr| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_host_is_spoken_to_without_encryption() {
        for own in ["localhost", "localhost:5000", "127.0.0.1:80", "127.9.9.9", "[::1]:5000"] {
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
