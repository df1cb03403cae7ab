// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Requests to a registry, with a bound on the size of each answer.
//!
//! Answers are read piece by piece, and each kind has a limit: the client libraries for registries
//! commonly read manifests, tokens and errors of any length. Credentials are sent only when the
//! registry asks for them (RFC 6750, RFC 7617, Docker's token protocol), to the registry and to the
//! token server that it names.

use super::archive::DOCUMENT;
use anyhow::{Context, anyhow, bail};
use oci_spec::distribution::Reference;
use paravane_user_io::text;
use reqwest::header::{ACCEPT, WWW_AUTHENTICATE};
use reqwest::redirect::Policy;
use reqwest::{Client, RequestBuilder, Response, StatusCode, Url};
use serde::Deserialize;
use std::cell::RefCell;
use std::error::Error;
use std::net::IpAddr;
use std::time::Duration;

/// Timeout for a connection, and for each further piece of an answer.
const CONNECT: Duration = Duration::from_secs(20);
const ANSWER: Duration = Duration::from_secs(60);
/// The most redirects that are followed.
const REDIRECTS: usize = 10;
/// Largest size of a token's answer and of an error message, in bytes.
const SMALL: u64 = 64 << 10;

/// Media types of manifests and indexes.
const ACCEPTED: &str = "application/vnd.oci.image.index.v1+json, \
    application/vnd.docker.distribution.manifest.list.v2+json, \
    application/vnd.oci.image.manifest.v1+json, \
    application/vnd.docker.distribution.manifest.v2+json";

/// Name and password, if the user has logged in to the registry.
pub type Login = Option<(String, String)>;

/// A registry, for one image.
pub struct Http<'a> {
    client: Client,
    /// For tokens: follows no redirects.
    tokens: Client,
    login: Login,
    reference: &'a Reference,
    /// The registry is on this host's loopback and is spoken to without encryption.
    own: bool,
    /// The authorization of requests, once the registry has asked for it.
    authorization: RefCell<Option<Authorization>>,
}

#[derive(Clone)]
enum Authorization {
    /// The name and password.
    Basic,
    /// A token.
    Bearer(String),
}

/// A token server's answer: servers use either name for the token.
#[derive(Deserialize)]
struct Token {
    token: Option<String>,
    access_token: Option<String>,
}

#[derive(Deserialize)]
struct Complaints {
    errors: Vec<Complaint>,
}

#[derive(Deserialize)]
struct Complaint {
    code: String,
}

impl<'a> Http<'a> {
    /// Creates a client. Sends nothing yet.
    pub fn new(reference: &'a Reference, own: bool, login: Login) -> anyhow::Result<Self> {
        // Fails if a provider is installed already, which is then this one.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = |redirects| {
            let builder = Client::builder()
                .connect_timeout(CONNECT)
                .read_timeout(ANSWER)
                .https_only(!own)
                .redirect(redirects)
                .user_agent(concat!("paravane/", env!("CARGO_PKG_VERSION")));
            builder
                .build()
                .map_err(|error| anyhow!("{}", root(&error)))
                .context("HTTPS does not work on this host: install ca-certificates")
        };
        Ok(Http {
            client: client(redirects(own))?,
            tokens: client(Policy::none())?,
            login,
            reference,
            own,
            authorization: RefCell::default(),
        })
    }

    /// Fetches a manifest or index by a tag or digest.
    pub async fn manifest(&self, name: &str) -> anyhow::Result<Vec<u8>> {
        let response = self.get("manifests", name).await?;
        let bytes = self.body(response, DOCUMENT).await?;
        bytes.with_context(|| format!("a manifest of more than {} MiB", DOCUMENT >> 20))
    }

    /// Requests a blob. [`Http::piece`] reads the answer.
    pub async fn blob(&self, digest: &str) -> anyhow::Result<Response> {
        self.get("blobs", digest).await
    }

    /// The next bytes of an answer; `None` at its end.
    pub async fn piece(
        &self,
        response: &mut Response,
    ) -> anyhow::Result<Option<impl AsRef<[u8]> + use<>>> {
        let piece = response.chunk().await;
        piece.map_err(|error| anyhow!("the connection to {} broke: {}", self.name(), root(&error)))
    }

    fn name(&self) -> &str {
        self.reference.resolve_registry()
    }

    async fn get(&self, kind: &str, name: &str) -> anyhow::Result<Response> {
        let scheme = if self.own { "http" } else { "https" };
        let url = format!(
            "{scheme}://{}/v2/{}/{kind}/{name}",
            self.name(),
            self.reference.repository()
        );
        let mut response = self.ask(&url).await?;
        if response.status() == StatusCode::UNAUTHORIZED && self.authorization.borrow().is_none() {
            let authorization = self.authorize(&response).await?;
            if authorization.is_some() {
                self.authorization.replace(authorization);
                response = self.ask(&url).await?;
            }
        }
        match response.status() {
            StatusCode::OK => Ok(response),
            _ => Err(self.complaint(response).await),
        }
    }

    async fn ask(&self, url: &str) -> anyhow::Result<Response> {
        let mut request = self.client.get(url).header(ACCEPT, ACCEPTED);
        // reqwest drops both on a redirect to another host.
        match &*self.authorization.borrow() {
            Some(Authorization::Bearer(token)) => request = request.bearer_auth(token),
            Some(Authorization::Basic) => request = self.basic(request),
            None => {}
        }
        self.send(request).await
    }

    async fn send(&self, request: RequestBuilder) -> anyhow::Result<Response> {
        let registry = self.name();
        request.send().await.map_err(|error| {
            if error.is_timeout() {
                anyhow!("{registry} does not answer")
            } else if error.is_connect() {
                anyhow!("cannot reach {registry}: {}", root(&error))
            } else {
                anyhow!("{registry}: {}", root(&error))
            }
        })
    }

    /// The body of an answer; `None` if it exceeds `most` bytes.
    async fn body(&self, mut response: Response, most: u64) -> anyhow::Result<Option<Vec<u8>>> {
        if response
            .content_length()
            .is_some_and(|length| length > most)
        {
            return Ok(None);
        }
        let mut bytes = Vec::new();
        while let Some(piece) = self.piece(&mut response).await? {
            bytes.extend_from_slice(piece.as_ref());
            if bytes.len() as u64 > most {
                return Ok(None);
            }
        }
        Ok(Some(bytes))
    }

    /// The authorization that the registry asks for in this answer.
    async fn authorize(&self, response: &Response) -> anyhow::Result<Option<Authorization>> {
        let Some(header) = response
            .headers()
            .get(WWW_AUTHENTICATE)
            .and_then(|h| h.to_str().ok())
        else {
            return Ok(None);
        };
        let challenges = http_auth::parse_challenges(header).unwrap_or_default();
        let of = |scheme: &str| {
            challenges
                .iter()
                .find(|c| c.scheme.eq_ignore_ascii_case(scheme))
        };
        if let Some(bearer) = of("Bearer") {
            let field = |name: &str| {
                let found = bearer
                    .params
                    .iter()
                    .find(|(key, _)| key.eq_ignore_ascii_case(name));
                found.map(|(_, value)| value.to_unescaped())
            };
            let realm = field("realm").with_context(|| {
                format!(
                    "{}: it asks for a token, but names no server for it",
                    self.name()
                )
            })?;
            let token = self.token(&realm, field("service")).await?;
            return Ok(Some(Authorization::Bearer(token)));
        }
        Ok(of("Basic")
            .and(self.login.as_ref())
            .map(|_| Authorization::Basic))
    }

    fn basic(&self, request: RequestBuilder) -> RequestBuilder {
        match &self.login {
            Some((user, password)) => request.basic_auth(user, Some(password)),
            None => request,
        }
    }

    /// Fetches a token from the server that the registry names.
    async fn token(&self, realm: &str, service: Option<String>) -> anyhow::Result<String> {
        let mut url = Url::parse(realm).with_context(|| format!("{}: {realm:?}", self.name()))?;
        if url.scheme() != "https" && !self.own {
            bail!(
                "{}: tokens from {realm:?}, which has no encryption: refused",
                self.name()
            );
        }
        if is_refused(&url, self.own) {
            bail!(
                "{}: tokens from {realm:?}, which is this host or its link: refused",
                self.name()
            );
        }
        url.query_pairs_mut()
            .append_pair(
                "scope",
                &format!("repository:{}:pull", self.reference.repository()),
            )
            .extend_pairs(service.map(|service| ("service", service)));
        let response = self.send(self.basic(self.tokens.get(url))).await?;
        if response.status() != StatusCode::OK {
            return Err(self.refused());
        }
        let bytes = self.body(response, SMALL).await?;
        let bytes = bytes.with_context(|| {
            format!("{}: a token of more than {} KiB", self.name(), SMALL >> 10)
        })?;
        let complain = || format!("{}: its answer contains no token", self.name());
        let token: Token = serde_json::from_slice(&bytes).with_context(complain)?;
        let token = token.token.or(token.access_token).with_context(complain)?;
        Ok(token)
    }

    fn refused(&self) -> anyhow::Error {
        let registry = self.name();
        anyhow!(
            "{registry} refuses access: check the name; if the registry needs a login, run \
             `docker login {registry}`"
        )
    }

    /// An error for the user.
    async fn complaint(&self, response: Response) -> anyhow::Error {
        let (registry, status) = (self.name(), response.status());
        // A message that is too long is left out.
        let words = self
            .body(response, SMALL)
            .await
            .ok()
            .flatten()
            .unwrap_or_default();
        let complaints =
            serde_json::from_slice(&words).map_or(Vec::new(), |words: Complaints| words.errors);
        let code = complaints.first().map_or("", |complaint| &complaint.code);
        match (code, status.as_u16()) {
            ("UNAUTHORIZED" | "DENIED", _) | (_, 401 | 403) => self.refused(),
            ("TOOMANYREQUESTS", _) | (_, 429) => {
                anyhow!("{registry} takes no more requests from us for now")
            }
            (
                "MANIFEST_UNKNOWN"
                | "NAME_UNKNOWN"
                | "NAME_INVALID"
                | "BLOB_UNKNOWN"
                | "MANIFEST_BLOB_UNKNOWN",
                _,
            )
            | (_, 404) => anyhow!("{registry} has no such image"),
            ("", status) => anyhow!("{registry} answers with HTTP status {status}"),
            (code, status) => anyhow!(
                "{registry} answers with HTTP status {status}: {}",
                text::clean(code.as_bytes())
            ),
        }
    }
}

/// Follows redirects, which many registries need for layers. A registry must not have this host
/// make requests to servers that only this host reaches.
fn redirects(own: bool) -> Policy {
    Policy::custom(move |attempt| {
        if attempt.previous().len() > REDIRECTS {
            attempt.error("too many redirects")
        } else if is_refused(attempt.url(), own) {
            attempt.error("a redirect to this host or its link: refused")
        } else {
            attempt.follow()
        }
    })
}

/// Whether a registry may not lead there. One on this host's loopback may lead to the loopback.
fn is_refused(url: &Url, own: bool) -> bool {
    is_near(url) && !(own && is_loopback(url))
}

/// Whether an address is of this host's loopback.
fn is_loopback(url: &Url) -> bool {
    match address(url) {
        Some(Ok(address)) => address.is_loopback(),
        Some(Err(name)) => name == "localhost" || name.ends_with(".localhost"),
        None => false,
    }
}

/// The address of a URL, or its name.
fn address(url: &Url) -> Option<Result<IpAddr, String>> {
    let host = url.host_str()?;
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let address = bare.parse::<IpAddr>().map(|address| address.to_canonical());
    Some(address.map_err(|_| host.trim_end_matches('.').to_ascii_lowercase()))
}

/// Whether an address is of this host itself, or of its link, where clouds have their metadata
/// service.
fn is_near(url: &Url) -> bool {
    is_loopback(url)
        || match address(url) {
            Some(Ok(IpAddr::V4(address))) => address.is_link_local() || address.is_unspecified(),
            Some(Ok(IpAddr::V6(address))) => {
                address.is_unicast_link_local() || address.is_unspecified()
            }
            Some(Err(_)) => false,
            None => true,
        }
}

/// The innermost cause of an error.
fn root(error: &(dyn Error + 'static)) -> String {
    let mut error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    text::clean(error.to_string().as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_this_host_are_near() {
        for (url, near) in [
            ("https://127.0.0.1/x", true),
            ("https://127.9.9.9:8080/x", true),
            ("https://2130706433/x", true),
            ("https://[::1]/x", true),
            ("https://[::ffff:127.0.0.1]/x", true),
            ("https://[fe80::1]/x", true),
            ("https://0.0.0.0/x", true),
            ("https://169.254.169.254/latest", true),
            ("https://localhost/x", true),
            ("https://a.LOCALHOST./x", true),
            ("https://example.org/x", false),
            ("https://10.0.0.1/x", false),
            ("https://[2001:db8::1]/x", false),
        ] {
            let url = Url::parse(url).unwrap();
            assert_eq!(
                (is_near(&url), is_refused(&url, false)),
                (near, near),
                "{url}"
            );
        }
    }

    /// No registry may make this host ask a cloud's metadata service for a token.
    #[test]
    fn tokens_come_from_no_server_near_this_host() {
        let reference: Reference = "registry.example.org/x:1".parse().unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        for (own, realm) in [
            (false, "https://127.0.0.1:9/token"),
            (false, "https://[::1]:9/token"),
            (false, "https://localhost:9/token"),
            (false, "https://169.254.169.254/token"),
            (true, "http://169.254.169.254/token"),
            (true, "http://0.0.0.0:9/token"),
            (true, "http://[fe80::1]:9/token"),
        ] {
            let http = Http::new(&reference, own, None).unwrap();
            let error = runtime.block_on(http.token(realm, None)).unwrap_err();
            assert!(error.to_string().ends_with("refused"), "{realm}: {error}");
        }
        for (url, refused) in [
            ("http://127.0.0.1:9/token", false),
            ("http://[::1]:9/token", false),
            ("http://localhost:9/token", false),
            ("http://example.org/token", false),
            ("http://169.254.169.254/token", true),
        ] {
            assert_eq!(
                is_refused(&Url::parse(url).unwrap(), true),
                refused,
                "{url}"
            );
        }
    }
}
