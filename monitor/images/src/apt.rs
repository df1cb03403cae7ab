// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The package sources of the host's apt.

use std::collections::BTreeMap;
use std::process::{Command, Stdio};

/// Debian's mirror, for a host whose apt has no source for the suite.
const DEFAULT_MIRROR: &str = "http://deb.debian.org/debian";

/// Options without which the host may not reach its mirror. An image needs them for the same
/// reason.
const OPTIONS: [&str; 7] = [
    "Acquire::http::Proxy",
    "Acquire::https::Proxy",
    "Acquire::https::Verify-Peer",
    "Acquire::http::Pipeline-Depth",
    "Acquire::Check-Valid-Until",
    "Acquire::Check-Date",
    "Acquire::Retries",
];

/// `deb` lines for a suite, its updates and its security fixes: those of the host's apt, or
/// Debian's mirror.
pub fn sources(suite: &str) -> Vec<String> {
    let format = "$(SITE) $(RELEASE) $(COMPONENT)";
    let known = output(
        "apt-get",
        &["indextargets", "--format", format, "Created-By: Packages"],
    );
    let lines = sources_of(&known.unwrap_or_default(), suite);
    if lines.is_empty() {
        vec![format!("deb {DEFAULT_MIRROR} {suite} main")]
    } else {
        lines
    }
}

fn sources_of(targets: &str, suite: &str) -> Vec<String> {
    // Put the components of one site and release on one line, in the host's order.
    let mut lines: BTreeMap<(String, String), Vec<String>> = BTreeMap::new();
    for line in targets.lines() {
        let mut words = line.split_whitespace();
        let (Some(site), Some(release), Some(component)) =
            (words.next(), words.next(), words.next())
        else {
            continue;
        };
        let rest = release.strip_prefix(suite);
        if !rest.is_some_and(|r| ["", "-updates", "-security", "/updates"].contains(&r)) {
            continue;
        }
        // A user name or password in an address must not get into an image.
        let site = match (site.split_once("://"), site.rsplit_once('@')) {
            (Some((scheme, _)), Some((_, host))) => format!("{scheme}://{host}"),
            _ => site.to_string(),
        };
        let components = lines.entry((release.to_string(), site)).or_default();
        if !components.iter().any(|c| c == component) {
            components.push(component.to_string());
        }
    }
    let has_suite = lines.keys().any(|(release, _)| release == suite);
    let line = |((release, site), components): (&(String, String), &Vec<String>)| {
        format!("deb {site} {release} {}", components.join(" "))
    };
    if has_suite {
        lines.iter().map(line).collect()
    } else {
        Vec::new()
    }
}

/// The host's options, as lines of apt.conf.
pub fn options() -> Vec<String> {
    options_of(&output("apt-config", &["dump"]).unwrap_or_default())
}

fn options_of(dump: &str) -> Vec<String> {
    let wanted = |line: &&str| {
        line.split_once(' ')
            .is_some_and(|(name, value)| OPTIONS.contains(&name) && value != "\"\";")
    };
    dump.lines()
        .filter(wanted)
        .map(|l| l.trim_end_matches(';').to_string())
        .collect()
}

fn output(program: &str, arguments: &[&str]) -> Option<String> {
    let done = Command::new(program)
        .args(arguments)
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .ok()?;
    done.status
        .success()
        .then(|| String::from_utf8_lossy(&done.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TARGETS: &str = "http://mirror.example/debian bookworm main\n\
        http://mirror.example/debian bookworm contrib\n\
        http://mirror.example/debian bookworm-updates main\n\
        http://user:secret@mirror.example/security bookworm-security main\n\
        http://other.example/debian trixie main\n\
        http://other.example/debian bookworm-backports main\n\
        nonsense\n";

    #[test]
    fn the_host_s_mirror_is_taken() {
        let lines = sources_of(TARGETS, "bookworm");
        let expected = [
            "deb http://mirror.example/debian bookworm main contrib",
            "deb http://mirror.example/security bookworm-security main",
            "deb http://mirror.example/debian bookworm-updates main",
        ];
        assert_eq!(lines, expected);
    }

    #[test]
    fn an_unknown_suite_has_no_lines() {
        assert!(sources_of(TARGETS, "sid").is_empty());
        assert!(sources_of("", "bookworm").is_empty());
        assert_eq!(
            sources_of(TARGETS, "trixie"),
            ["deb http://other.example/debian trixie main"]
        );
    }

    #[test]
    fn only_what_concerns_the_way_to_the_mirror_is_taken() {
        let dump = "Acquire::http::Proxy \"http://proxy.example:3128\";\n\
                    APT::Install-Recommends \"0\";\n\
            Acquire::https::Proxy \"\";\nAcquire::Check-Date \"false\";\nAcquire \"\";\n";
        let expected = [
            "Acquire::http::Proxy \"http://proxy.example:3128\"",
            "Acquire::Check-Date \"false\"",
        ];
        assert_eq!(options_of(dump), expected);
    }
}
