// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the measured machine does. Each workload is a script for bash.

use super::Bench;
use super::machines::Machine;
use anyhow::bail;

/// What a machine does, and what its root needs for that.
#[derive(Debug)]
pub struct Workload {
    pub name: &'static str,
    /// Fails if the root lacks something; its last line says what.
    check: &'static str,
    /// Makes its files. `$scale` is 1 with `--quick`, else 3.
    prepare: &'static str,
    /// What is measured. `$jobs` is the number of vCPUs, `$clients` that of a database's clients.
    run: &'static str,
    /// The clients, if they are not as many as vCPUs.
    clients: Option<u32>,
}

/// In the manner of kernbench: many small compilations, twice as many at a time as there are vCPUs.
const COMPILE: Workload = Workload {
    name: "kernbench",
    check: "command -v gcc && command -v xargs && [ -e /usr/include/stdio.h ] || \
            { echo 'its root has no gcc, xargs and headers'; exit 1; }",
    prepare: "mkdir -p /tmp/kernbench; cd /tmp/kernbench\n\
        for n in $(seq $((scale * 16))); do\n\
        { echo '#include <stdio.h>'; echo '#include <stdlib.h>'; echo '#include <string.h>'\n\
        for f in $(seq 40); do\n\
        echo \"int f${n}_$f(int a, char *b) { for (int i = 0; i < a; i++) b[i] ^= $f * i + $n; \
        return printf(\\\"%s\\\", b) + atoi(b); }\"\n\
        done; } >$n.c\n\
        done",
    run: "cd /tmp/kernbench; printf '%s\\n' *.c | xargs -P $((2 * jobs)) -n 1 \
          gcc -O2 -c -o /dev/null",
    clients: None,
};

const CONTEND: &str = "for i in $(seq $groups); do (for n in $(seq $scale); do \
    /mnt/micro hackbench; done >/dev/null) & done; \
    for job in $(jobs -p); do wait $job; done";

/// Two groups of ten senders and ten receivers.
const FEW: Workload = Workload {
    name: "hackbench-40",
    check: "[ -x /mnt/micro ] || { echo 'hackbench is not there'; exit 1; }",
    prepare: "true",
    run: "groups=2",
    clients: None,
};

/// Ten such groups.
const MANY: Workload = Workload {
    name: "hackbench-200",
    check: FEW.check,
    prepare: "true",
    run: "groups=10",
    clients: None,
};

/// Transactions of a database in all, times `$scale`.
const TRANSACTIONS: u32 = 4000;

/// A fixed number of transactions that read, by as many clients as vCPUs.
const DATABASE: Workload = database("pgbench", None);

/// Transactions that read, by a number of clients, all with the same database.
const fn database(name: &'static str, clients: Option<u32>) -> Workload {
    Workload {
        name,
        check: DATABASE_CHECK,
        prepare: DATABASE_PREPARE,
        run: DATABASE_RUN,
        clients,
    }
}

const DATABASE_CHECK: &str = "ls /usr/lib/postgresql/*/bin/initdb || \
    { echo 'its root has no PostgreSQL'; exit 1; }";
const DATABASE_PREPARE: &str = "[ ! -d /tmp/pg ] || exit 0\n\
    bin=$(echo /usr/lib/postgresql/*/bin)\n\
    as=\"setpriv --reuid=postgres --regid=postgres --clear-groups env HOME=/tmp\"\n\
    as=\"$as PATH=$bin:$PATH\"\n\
    install -d -o postgres -g postgres -m 700 /tmp/pg\n\
    cd /tmp/pg\n\
    $as initdb -D /tmp/pg/data -A trust -U postgres --no-locale -E UTF8 --no-sync >/dev/null\n\
    $as pg_ctl -D /tmp/pg/data -l /tmp/pg/log -w -o \"-k /tmp -c listen_addresses=''\" start \
    >/dev/null\n\
    $as createdb -h /tmp -U postgres bench\n\
    $as pgbench -h /tmp -U postgres -i -q -s 2 bench >/dev/null";
const DATABASE_RUN: &str = "PATH=$(echo /usr/lib/postgresql/*/bin):$PATH\n\
    threads=$((clients < jobs ? clients : jobs))\n\
    pgbench -h /tmp -U postgres -n -S -M simple -c $clients -j $threads \
    -t $((scale * transactions / clients)) bench >/dev/null";

/// In the order of the table.
pub static WORKLOADS: [Workload; 4] = [COMPILE, FEW, MANY, DATABASE];

/// Those in which a machine that has its processors to itself may lose.
pub static NO_LOSS: [Workload; 9] = [
    COMPILE,
    FEW,
    MANY,
    database("pgbench-1", Some(1)),
    database("pgbench-2", Some(2)),
    database("pgbench-4", Some(4)),
    database("pgbench-8", Some(8)),
    database("pgbench-16", Some(16)),
    database("pgbench-32", Some(32)),
];

/// The workloads with these names, in the table's order; all if there are no names. `others` are
/// names of workloads that are not in the table.
pub fn select(
    table: &'static [Workload],
    others: &[&str],
    names: &[String],
) -> anyhow::Result<Vec<&'static Workload>> {
    for name in names {
        let known = table.iter().map(|workload| workload.name);
        let known: Vec<_> = known.chain(others.iter().copied()).collect();
        if !known.contains(&name.as_str()) {
            bail!("--workload {name}: there are {}", known.join(", "));
        }
    }
    let wanted = |w: &&Workload| names.is_empty() || names.iter().any(|name| w.name == name);
    Ok(table.iter().filter(wanted).collect())
}

impl Workload {
    /// Prepares it in the machines. Returns why it cannot be measured, if so.
    pub fn prepare(
        &self,
        machines: &mut [Machine<'_>],
        quick: bool,
    ) -> anyhow::Result<Option<String>> {
        let scale = scale(quick);
        for machine in machines {
            // The script that checks always succeeds, and its last line says what is missing.
            let answer =
                machine.run(&format!("({}) || exit 0; echo 'all is there'", self.check))?;
            if answer.line != "all is there" {
                return Ok(Some(answer.line));
            }
            machine.run(&format!("scale={scale}\n{}", self.prepare))?;
        }
        Ok(None)
    }

    /// Runs it once, and returns the time that it took, in seconds.
    pub fn run(&self, machine: &mut Machine<'_>, bench: &Bench<'_>) -> anyhow::Result<f64> {
        let work = if self.run.starts_with("groups=") {
            format!("{}\n{CONTEND}", self.run)
        } else {
            self.run.to_string()
        };
        let script = format!(
            "scale={} jobs={} clients={} transactions={TRANSACTIONS}\n{work}",
            scale(bench.args.quick),
            bench.vcpus,
            self.clients.unwrap_or(bench.vcpus)
        );
        Ok(machine.run(&script)?.seconds)
    }
}

fn scale(quick: bool) -> u32 {
    if quick { 1 } else { 3 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn scripts_are_bash() {
        for workload in WORKLOADS.iter().chain(&NO_LOSS) {
            for script in [workload.check, workload.prepare, workload.run, CONTEND] {
                let status = Command::new("bash").args(["-n", "-c", script]).status();
                assert!(status.unwrap().success(), "{}: {script}", workload.name);
            }
        }
    }

    #[test]
    fn workloads_are_chosen_by_name() {
        let choose = |name: &str| select(&WORKLOADS, &["other"], &[name.to_string()]);
        assert_eq!(select(&WORKLOADS, &[], &[]).unwrap().len(), WORKLOADS.len());
        assert!(choose("other").unwrap().is_empty());
        assert_eq!(choose("pgbench").unwrap()[0].name, "pgbench");
        let error = choose("none").unwrap_err().to_string();
        assert!(
            error.starts_with("--workload none: there are kernbench, ")
                && error.ends_with(", pgbench, other"),
            "{error}"
        );
    }

    #[test]
    fn names_are_unique() {
        for table in [&WORKLOADS[..], &NO_LOSS] {
            let mut names: Vec<_> = table.iter().map(|w| w.name).collect();
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), table.len());
        }
    }
}
