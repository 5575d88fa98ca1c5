//! `cargo xtask bench inbox`: the page with many requests that wait: how fast it answers, how soon a vote is shown, and
//! the cost of open pages.
//!
//! gates opened by the operator -> votes, seen by a page and by a bare watch -> pages beside bare lists -> many open
//! pages, idle
//!
//! No cluster is used but its own. Every reader has a token of their own, and so a session and a watch of their own:
//! two readers share only what the page itself shares.

mod opened;
mod reader;
mod tables;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::{Args, value_parser};
use futures::future::try_join;
use signoff_tests::control_plane::{OperatorProcess, Options, WebOptions, WebProcess};
use signoff_tests::say;
use tokio::sync::mpsc;

use self::opened::Opened;
use self::reader::{Reader, Readers};
use super::counters::Counters;
use super::harness::{self, Harness};
use super::processors::Reading;
use super::{crowd, process, run_to_end, sample};

/// The pause before each vote: people do not vote as fast as answers come.
const PAUSE: Duration = Duration::from_millis(150);
/// Pages that are measured, each beside a list.
const PAGES: usize = 200;
/// Readers whose first page is measured, each with a feed of their own.
const COLD: usize = 20;
/// The number of the first reader whose page stays open. The readers before watch the votes, load a first page, or load
/// many pages.
const FIRST_LIVE: usize = COLD + 2;
/// The time in which open pages do nothing.
const IDLE: Duration = Duration::from_secs(60);
/// The deadline for a vote to be shown, and for a page to become live.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Options of `cargo xtask bench inbox`.
#[derive(Debug, Args)]
pub(crate) struct Inbox {
    /// Requests that wait while pages are measured, 40 of each run; the goals are for 1,000
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = value_parser!(u32).range(40..=20_000))]
    approvals: u32,
    /// Votes, of requests that wait besides
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = value_parser!(u32).range(10..=2_000))]
    votes: u32,
    /// Open pages, each of a session of its own; the goals are for 200
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = value_parser!(u16).range(1..=500))]
    pages: u16,
    /// Measure operator and page as `cargo build` makes them: quick to build, several times slower than a release; no
    /// goal is judged
    #[arg(long)]
    debug_build: bool,
}

/// All figures.
pub(super) struct Measured {
    is_debug: bool,
    /// Requests that waited while pages were measured.
    approvals: usize,
    votes: Votes,
    pages: Pages,
    live: Live,
}

/// The votes of one user, as others see them.
struct Votes {
    /// From the vote sent to the page's event with one request less.
    shown: Vec<Duration>,
    /// From the vote sent to a bare watch's event that the request is decided.
    watched: Vec<Duration>,
    others: f64,
}

/// The inbox of a reader for whom all requests wait, and the files that it loads.
struct Pages {
    /// The first page of a reader, with which their feed begins.
    cold: Vec<Duration>,
    warm: Vec<Duration>,
    /// A list of the same requests, sent to the API server by the same reader, before each page.
    lists: Vec<Duration>,
    page_bytes: usize,
    /// The name and the bytes of each file.
    files: Vec<(String, usize)>,
    list_bytes: usize,
    others: f64,
}

/// Open pages without any changes.
struct Live {
    count: usize,
    /// The page's memory before the first open page, and with all of them, in MiB.
    rss_before_mib: f64,
    rss_mib: f64,
    peak_mib: f64,
    /// The share of one processor that the page used.
    cpu: f64,
    others: f64,
}

/// Measures and prints the tables.
pub(super) fn run(options: &Inbox) -> Result<ExitCode> {
    let operator = harness::build(options.debug_build)?;
    let page = harness::build_page(options.debug_build)?;
    let measured = run_to_end(measure(options, operator, page))?;
    say::result(&tables::render(&measured));
    Ok(ExitCode::SUCCESS)
}

async fn measure(options: &Inbox, operator: PathBuf, page: PathBuf) -> Result<Measured> {
    say::step("starting a control plane and installing the chart");
    let harness = Harness::open(Options::default(), &operator).await?;
    let operator = harness.operator().await?;
    let web = WebOptions {
        program: Some(page),
        kubeconfig: harness.cluster.kubeconfig_of_nobody()?,
        // Each reader comes from an address of their own: sign-ins are limited by address.
        arguments: vec!["--proxies=1".to_owned()],
        ..WebOptions::default()
    };
    let web = WebProcess::start(&harness.cluster, web).await?;
    let votes = options.votes as usize;
    let opened = Opened::open(&harness, &operator, options.approvals as usize + votes).await?;
    say::step("letting readers in");
    let pages = usize::from(options.pages);
    let readers = Readers::prepare(&harness, &opened.namespace, FIRST_LIVE + pages).await?;
    let bench = Bench { harness, operator, web, opened, readers };
    bench.at_rest().await?;

    let waiting = bench.opened.count;
    say::step(&format!("voting {votes} times while {waiting} requests wait"));
    let votes = bench.votes(votes).await?;
    bench.at_rest().await?;
    say::step("asking for the inbox, beside lists of the API server");
    let measured = Measured {
        is_debug: options.debug_build,
        approvals: waiting - votes.shown.len(),
        votes,
        pages: bench.pages().await?,
        live: bench.live(pages).await?,
    };
    bench.web.stop().await?;
    bench.operator.stop().await?;
    Ok(measured)
}

/// The running programs and their objects.
struct Bench {
    harness: Harness,
    operator: OperatorProcess,
    web: WebProcess,
    opened: Opened,
    readers: Readers,
}

impl Bench {
    async fn at_rest(&self) -> Result<()> {
        Counters::read_at_rest(&self.operator).await.map(drop)
    }

    fn reading(&self) -> Result<Reading> {
        let page = self.web.pid().map(|pid| ("page", pid));
        Reading::take_with(&self.harness, Some(&self.operator), page)
    }

    /// Returns the processors that others have used since.
    fn others(&self, since: &Reading) -> Result<f64> {
        Ok(self.reading()?.since(since).others())
    }

    async fn reader(&self, number: usize) -> Result<Reader> {
        Reader::sign_in(&self.web, self.readers.token(number)?, number).await
    }

    /// Lets one user vote repeatedly, while a reader's page and a bare watch show it.
    async fn votes(&self, count: usize) -> Result<Votes> {
        let mut live = self.reader(0).await?.live().await?;
        let mut waiting = live.waiting().await?;
        let all = self.opened.count;
        ensure!(waiting == all, "{all} requests wait, and the page says {waiting}");
        let (sender, mut decided) = mpsc::unbounded_channel::<(String, Instant)>();
        let body = serde_json::to_vec(&sample::decision(harness::approver_user()?))?;
        let approvals = sample::path(&self.opened.namespace, "approvals");
        let before = self.reading()?;
        let voting = async {
            let (mut shown, mut watched) = (Vec::new(), Vec::new());
            for name in self.opened.names_in_turns().take(count) {
                tokio::time::sleep(PAUSE).await;
                let path = format!("{approvals}/{name}");
                let left = all - shown.len() - 1;
                let sent = Instant::now();
                let seeing = async {
                    while waiting > left {
                        waiting = live.waiting().await?;
                    }
                    Ok(Instant::now())
                };
                let voting = try_join(crowd::patch(&self.harness.approver, &path, body.clone()), seeing);
                let both = async {
                    let (_, seen) = voting.await?;
                    Ok::<_, anyhow::Error>((seen, decided.recv().await.context("the watch has ended")?))
                };
                let both = tokio::time::timeout(TIMEOUT, both).await;
                let (seen, (other, at)) =
                    both.with_context(|| format!("the vote on {name} is not shown after {TIMEOUT:?}"))??;
                ensure!(other == *name, "{name} was voted on, and {other} was decided");
                shown.push(seen.saturating_duration_since(sent));
                watched.push(at.saturating_duration_since(sent));
            }
            Ok((shown, watched))
        };
        let watching = self.opened.watch_decisions(&self.harness, count, sender);
        let ((), (shown, watched)) = try_join(watching, voting).await?;
        Ok(Votes { shown, watched, others: self.others(&before)? })
    }

    /// Measures first pages of several readers, and many pages of one reader, each beside a list.
    async fn pages(&self) -> Result<Pages> {
        let before = self.reading()?;
        let mut cold = Vec::new();
        for number in 1..=COLD {
            let reader = self.reader(number).await?;
            let began = Instant::now();
            reader.get("/").await?;
            cold.push(began.elapsed());
        }
        let reader = self.reader(COLD + 1).await?;
        let client = self.harness.cluster.bearer(self.readers.token(COLD + 1)?).await?;
        let page = reader.get("/").await?;
        let list = sample::path(&self.opened.namespace, "approvals");
        let (mut warm, mut lists, mut list_bytes) = (Vec::new(), Vec::new(), 0);
        for _ in 0..PAGES {
            let began = Instant::now();
            list_bytes = crowd::get(&client, &list).await?.len();
            lists.push(began.elapsed());
            let began = Instant::now();
            reader.get("/").await?;
            warm.push(began.elapsed());
        }
        let mut files = Vec::new();
        for path in reader::files(&page) {
            let bytes = reader.get(&path).await?.len();
            files.push((path.rsplit('/').next().unwrap_or_default().to_owned(), bytes));
        }
        ensure!(!files.is_empty(), "the inbox loads no files");
        let page_bytes = page.len();
        Ok(Pages { cold, warm, lists, page_bytes, files, list_bytes, others: self.others(&before)? })
    }

    /// Measures `count` open pages without any changes.
    async fn live(&self, count: usize) -> Result<Live> {
        say::step(&format!("opening {count} pages"));
        let pid = self.web.pid().context("the page does not run")?;
        let before = process::usage(pid)?;
        let waiting = self.opened.count;
        let pages = crowd::each(4, count, async |index| {
            let reader = self.reader(FIRST_LIVE + index).await?;
            reader.get("/").await?;
            let mut live = reader.live().await?;
            let said = tokio::time::timeout(TIMEOUT, live.waiting()).await.context("an open page says nothing")??;
            ensure!((1..waiting).contains(&said), "an open page says that {said} requests wait");
            Ok(live)
        })
        .await?;
        self.at_rest().await?;
        say::step("doing nothing for a minute");
        let (reading, cpu, began) = (self.reading()?, process::cpu(pid)?, Instant::now());
        tokio::time::sleep(IDLE).await;
        let used = process::cpu(pid)?.saturating_sub(cpu);
        let (others, after) = (self.others(&reading)?, process::usage(pid)?);
        drop(pages);
        Ok(Live {
            count,
            rss_before_mib: before.rss_mib,
            rss_mib: after.rss_mib,
            peak_mib: after.peak_mib,
            cpu: used.as_secs_f64() / began.elapsed().as_secs_f64(),
            others,
        })
    }
}
