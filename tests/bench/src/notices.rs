//! `cargo xtask bench notices`: how soon a notice arrives, and its cost for the operator, under the load of the open
//! loop of gates.
//!
//! gates without notices -> with notices to a webhook on loopback -> without notices
//!
//! No cluster is used but its own. The receiver answers at once and over plain HTTP: the time of a receiver is not
//! measured.

mod receiver;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::{Args, value_parser};
use futures::future::try_join;
use serde_json::{Value, json};
use signoff_api::names::LABEL_WORKFLOW;
use signoff_tests::control_plane::{OperatorProcess, Options};
use signoff_tests::say;

use self::receiver::Receiver;
use super::counters::Counters;
use super::gates::{wait_for_ends, warm_up, watch_ends, with_time_limit};
use super::goal::{Figure, Goal, figures, render_table};
use super::harness::{self, Harness, approver_user};
use super::processors::{OPERATOR, Reading, Used};
use super::table::{hundredths, machine, milliseconds, table, tenths, whole};
use super::watch::Watch;
use super::{crowd, process, run_to_end, sample};

/// The notices of a run with one gate: asked, taken, ended.
const NOTICES: usize = 3;
/// The deadline for the last notice.
const TIMEOUT: Duration = Duration::from_secs(120);

/// Options of `cargo xtask bench notices`.
#[derive(Debug, Args)]
pub(crate) struct Notices {
    /// Clients at once; the goals are for 16
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = value_parser!(u16).range(1..=64))]
    clients: u16,
    /// Workflows of each run
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = value_parser!(u32).range(10..=20_000))]
    workflows: u32,
    /// Write all figures to this file too, as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Measure the operator as `cargo build` makes it: quick to build, several times slower than a release; no goal is
    /// judged
    #[arg(long)]
    debug_build: bool,
}

/// All figures.
struct Measured {
    is_debug: bool,
    clients: usize,
    workflows: usize,
    /// The loads without notices, before and after.
    without: [Load; 2],
    with: Load,
    /// From the watch event of the gate to the arrival of its notice.
    delays: Vec<Duration>,
}

/// Gates that were opened and decided with one operator.
struct Load {
    used: Used,
    peak_mib: f64,
    /// The arrival of each Approval's watch event.
    asked: BTreeMap<String, Instant>,
}

/// Measures, prints the tables, and writes the file of `--json`.
pub(super) fn run(options: &Notices) -> Result<ExitCode> {
    let program = harness::build(options.debug_build)?;
    let measured = run_to_end(measure(options, &program))?;
    harness::publish(&measured.render(), &measured.to_json(), options.json.as_deref())?;
    Ok(ExitCode::SUCCESS)
}

async fn measure(options: &Notices, program: &Path) -> Result<Measured> {
    say::step("starting a control plane and installing the chart");
    let harness = Harness::open(Options::default(), program).await?;
    // The operator has the rights for notices only if the chart configures them.
    harness.cluster.install(&[("notifications.inbox", receiver::INBOX)]).await?;
    drop(warm_up(&harness).await?);
    let (clients, workflows) = (usize::from(options.clients), options.workflows as usize);
    let step = |what: &str| say::step(&format!("{workflows} workflows, clients: {clients}, {what}"));
    step("without notices");
    let before = Load::measure(&harness, None, clients, workflows).await?;
    step("with notices");
    let receiver = Receiver::start().await?;
    let with = Load::measure(&harness, Some(&receiver), clients, workflows).await?;
    let arrived = receiver.asked();
    let delay = |(approval, seen): (&String, &Instant)| {
        let at = arrived.get(approval).with_context(|| format!("no notice of {approval} arrived"))?;
        Ok(at.saturating_duration_since(*seen))
    };
    let delays = with.asked.iter().map(delay).collect::<Result<_>>()?;
    step("without notices again");
    let after = Load::measure(&harness, None, clients, workflows).await?;
    Ok(Measured { is_debug: options.debug_build, clients, workflows, without: [before, after], with, delays })
}

impl Load {
    /// Opens and decides gates with an operator of its own.
    async fn measure(harness: &Harness, receiver: Option<&Receiver>, clients: usize, count: usize) -> Result<Self> {
        let file = receiver.map(Receiver::file);
        let arguments: Vec<&str> = file.into_iter().flat_map(|file| ["--notifications", file]).collect();
        let operator = harness.operator_with_arguments(&arguments).await?;
        let namespace = harness.namespace().await?;
        Counters::read_at_rest(&operator).await?;
        let before = Reading::take(harness, Some(&operator))?;
        let asked = open(harness, &operator, &namespace, clients, count).await?;
        let names: Vec<&String> = asked.keys().collect();
        decide(harness, &operator, &namespace, clients, &names).await?;
        if let Some(receiver) = receiver {
            let all = receiver.until(count * NOTICES);
            with_time_limit(TIMEOUT, &operator, "not all notices arrived", all).await?;
        }
        let (_, after) = Counters::read_at_rest_with(&operator, || Reading::take(harness, Some(&operator))).await?;
        let (used, peak_mib) = (after.since(&before), process::usage(operator.pid())?.peak_mib);
        operator.stop().await?;
        Ok(Self { used, peak_mib, asked })
    }

    /// Returns the operator's processor time, in microseconds.
    fn operator_us(&self) -> f64 {
        self.used.cpu(OPERATOR).as_secs_f64() * 1_000_000.0
    }
}

/// Applies `count` Workflows as fast as the clients can; returns the Approvals with the arrivals of their watch events.
async fn open(
    harness: &Harness,
    operator: &OperatorProcess,
    namespace: &str,
    clients: usize,
    count: usize,
) -> Result<BTreeMap<String, Instant>> {
    let (workflows, approver) = (sample::path(namespace, "workflows"), approver_user()?);
    let watch = Watch::open(&harness.admin, &sample::path(namespace, "approvals"), "").await?;
    let mut asked = BTreeMap::new();
    let watching = watch.until(|sight| {
        let metadata = sight.object.metadata;
        ensure!(metadata.labels.contains_key(LABEL_WORKFLOW), "Approval {} has no label", metadata.name);
        asked.entry(metadata.name).or_insert(sight.at);
        Ok(asked.len() == count)
    });
    let applying = crowd::each(clients, count, async |index| {
        let body = serde_json::to_vec(&sample::workflow(&sample::name(index), approver))?;
        crowd::post(&harness.requester, &workflows, body).await.map(drop)
    });
    with_time_limit(time_limit(count), operator, "not all gates were open", try_join(watching, applying)).await?;
    Ok(asked)
}

/// Approves every gate as fast as the clients can, and waits until every run has succeeded.
async fn decide(
    harness: &Harness,
    operator: &OperatorProcess,
    namespace: &str,
    clients: usize,
    approvals: &[&String],
) -> Result<()> {
    let watch = watch_ends(harness, namespace).await?;
    let body = serde_json::to_vec(&sample::decision(approver_user()?))?;
    let collection = sample::path(namespace, "approvals");
    let voting = crowd::each(clients, approvals.len(), async |index| {
        let path = format!("{collection}/{}", approvals[index]);
        crowd::patch(&harness.approver, &path, body.clone()).await.map(drop)
    });
    let acting = try_join(wait_for_ends(watch, approvals.len()), voting);
    with_time_limit(time_limit(approvals.len()), operator, "not all runs have ended", acting).await.map(drop)
}

fn time_limit(count: usize) -> Duration {
    Duration::from_secs(60) + Duration::from_millis(100) * u32::try_from(count).unwrap_or(u32::MAX)
}

impl Measured {
    /// Returns the operator's processor time for one notice, in microseconds: the difference to the runs without
    /// notices.
    fn notice_us(&self) -> f64 {
        let without = self.without.iter().map(Load::operator_us).sum::<f64>() / 2.0;
        (self.with.operator_us() - without) / (self.workflows * NOTICES) as f64
    }

    fn delay(&self, share: f64) -> f64 {
        milliseconds(crowd::percentile(&self.delays, share))
    }

    fn others(&self) -> f64 {
        let all = [&self.without[0], &self.with, &self.without[1]];
        all.map(|load| load.used.others()).into_iter().fold(0.0, f64::max)
    }

    fn goals(&self) -> [Goal; 2] {
        let figure = |value| Some(Figure::new(value, self.others()));
        [
            Goal::at_most(
                "noticeDelayP99Ms",
                "gate asks → notice delivered, p99, ms",
                2000.0,
                figure(self.delay(0.99)),
            ),
            Goal::at_most("noticeCpuUs", "the operator's CPU a notice, µs", 300.0, figure(self.notice_us())),
        ]
    }

    fn render(&self) -> String {
        let build = if self.is_debug { "debug" } else { "release" };
        let head = format!(
            "\nNotices, {build} build: {} workflows, clients: {}, a webhook on loopback without TLS.\n{}.",
            whole(self.workflows as f64),
            self.clients,
            machine()
        );
        let delays = table(
            &["", "p50, ms", "p99, ms"].map(str::to_owned),
            [(
                "gate seen by a bare watch → notice delivered",
                [0.5, 0.99].map(|share| tenths(self.delay(share))).to_vec(),
            )],
        );
        let [before, after] = &self.without;
        let row = |load: &Load| {
            let a_workflow = load.operator_us() / self.workflows as f64 / 1000.0;
            vec![hundredths(a_workflow), tenths(load.peak_mib), hundredths(load.used.others())]
        };
        let costs = table(
            &["The operator", "CPU a workflow, ms", "peak memory, MiB", "others, processors"].map(str::to_owned),
            [
                ("without notices", row(before)),
                ("with notices", row(&self.with)),
                ("without notices again", row(after)),
            ],
        );
        [head, delays, costs, render_table(&self.goals(), self.is_debug)].join("\n\n")
    }

    fn to_json(&self) -> Value {
        let goals = self.goals();
        json!({
            "debugBuild": self.is_debug, "clients": self.clients, "workflows": self.workflows,
            "delayP50Ms": self.delay(0.5), "delayP99Ms": self.delay(0.99), "noticeCpuUs": self.notice_us(),
            "peakMib": {"with": self.with.peak_mib, "without": self.without.each_ref().map(|load| load.peak_mib)},
            "goals": figures(&goals),
            "judged": goals.each_ref().map(|goal| goal.to_json(self.is_debug)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(us: u64) -> Load {
        let used = Used::of_one(OPERATOR, Duration::from_micros(us));
        Load { used, peak_mib: 50.0, asked: BTreeMap::new() }
    }

    #[test]
    fn a_notice_costs_what_the_operator_uses_more_than_without_it() {
        let measured = Measured {
            is_debug: false,
            clients: 16,
            workflows: 10,
            without: [load(30_000), load(34_000)],
            with: load(38_000),
            delays: (1..=100).map(Duration::from_millis).collect(),
        };
        assert!((measured.notice_us() - 200.0).abs() < 1e-6);
        let text = measured.render();
        assert!(text.contains("200.00") && text.contains("met") && text.contains("99.0"), "{text}");
        assert_eq!(measured.to_json()["delayP50Ms"], json!(50.0));
    }
}
