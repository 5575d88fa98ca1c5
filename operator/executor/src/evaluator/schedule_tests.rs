//! Tests of the order of evaluations in virtual time, with random tenants: every evaluation waits for a bounded number
//! of others.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout)]

use std::collections::{BTreeMap, BTreeSet};

use super::{
    super::shares::{LEAST, SURPRISE},
    *,
};

const LIMIT: Duration = Duration::from_secs(5);
const SEEDS: u64 = 16;
/// The virtual time of one simulation.
const LENGTH: Duration = Duration::from_secs(90);
/// The time for which a namespace leaves the thread to cheap evaluations after an unexpected cost.
const MINUTE: Duration = Duration::from_secs(60);

fn milliseconds(count: u64) -> Duration {
    Duration::from_millis(count)
}

/// The behavior of a tenant.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    /// One short evaluation after another, with pauses.
    Honest,
    /// A new Workflow for every evaluation, which uses all or most of the limit.
    Fresh,
    /// The same costly Workflows again and again.
    Known,
    /// A queue of short evaluations.
    Flood,
    /// Many cheap evaluations, and then a costly one of a new Workflow.
    Surprise,
    /// A queue of evaluations at the limit of cheap ones.
    Edge,
}

const HOSTILE: [Kind; 5] = [Kind::Fresh, Kind::Known, Kind::Flood, Kind::Surprise, Kind::Edge];

struct Tenant {
    name: String,
    kind: Kind,
    submitted: u64,
    /// The number of waiting and running evaluations.
    open: usize,
    /// The time of its next submission.
    next: Instant,
}

impl Tenant {
    /// Returns the uid and the cost of its next evaluation.
    fn next_job(&mut self, random: &mut fastrand::Rng) -> (String, Duration) {
        self.submitted += 1;
        let fresh = format!("{}-{}", self.name, self.submitted);
        let known = format!("{}-{}", self.name, self.submitted % 3);
        match self.kind {
            Kind::Honest => (if random.bool() { fresh } else { known }, milliseconds(random.u64(1..30))),
            Kind::Fresh => (fresh, milliseconds(random.u64(4000..=5000))),
            Kind::Known => (known, milliseconds(random.u64(500..=5000))),
            Kind::Flood => (fresh, Duration::from_micros(random.u64(50..4000))),
            Kind::Surprise if self.submitted.is_multiple_of(40) => (fresh, LIMIT),
            Kind::Surprise => (known, milliseconds(random.u64(1..5))),
            Kind::Edge => (fresh, milliseconds(random.u64(40..=50))),
        }
    }

    fn most_open(&self) -> usize {
        if self.kind == Kind::Honest { 1 } else { 12 }
    }

    fn pause(&self, random: &mut fastrand::Rng) -> Duration {
        milliseconds(if self.kind == Kind::Honest { random.u64(5..400) } else { random.u64(0..20) })
    }
}

/// An evaluation in the queue.
struct Evaluation {
    tenant: usize,
    subject: Subject,
    cost: Duration,
    since: Instant,
    /// Whether it was expected to be costly when it was submitted.
    was_costly: bool,
    /// The shares when it was submitted, if its tenant had no other evaluation.
    shares: Option<BTreeMap<String, Duration>>,
}

struct Simulation {
    schedule: Schedule<Evaluation>,
    threads: usize,
    tenants: Vec<Tenant>,
    /// By number: the time of the end or stop, the cost until then, and whether the evaluation was expected to be
    /// costly.
    running: BTreeMap<u64, (Instant, Duration, bool, Evaluation)>,
    /// For each tenant the start of each evaluation, and whether it was costly.
    begun: Vec<Vec<(Instant, bool)>>,
    surprised: BTreeMap<String, Instant>,
    longest: Duration,
    checked: usize,
}

impl Simulation {
    fn submit(&mut self, tenant: usize, now: Instant, random: &mut fastrand::Rng) {
        let (uid, cost) = self.tenants[tenant].next_job(random);
        let Tenant { name, open, .. } = &mut self.tenants[tenant];
        let is_alone = std::mem::replace(open, *open + 1) == 0;
        let subject =
            Subject { kind: "Workflow".to_owned(), namespace: name.clone(), name: uid.clone(), uid, generation: 1 };
        let used = |tenant: &Tenant| (tenant.name.clone(), self.schedule.shares.used(&tenant.name, now));
        let shares = is_alone.then(|| self.tenants.iter().map(used).collect());
        let was_costly = self.schedule.shares.estimate_cost(&subject, now).is_costly;
        let evaluation = Evaluation { tenant, subject: subject.clone(), cost, since: now, was_costly, shares };
        self.schedule.submit(subject, evaluation, now);
    }

    fn begin_all(&mut self, now: Instant) {
        while self.running.len() < self.threads
            && let Some((number, evaluation)) = self.schedule.begin_next(self.threads, now)
        {
            let (is_costly, name) = (self.schedule.is_costly(number), &evaluation.subject.namespace);
            let most = self.threads.saturating_sub(1).max(1);
            let costly = self.schedule.running.values().filter(|running| running.expected.is_costly).count();
            assert!(costly <= most, "{costly} costly evaluations on {} threads", self.threads);
            let left = self.surprised.get(name).is_some_and(|since| now < *since + MINUTE);
            assert!(!left || is_costly, "{name} has not left the thread for cheap ones");
            self.check_wait(&evaluation, is_costly || evaluation.was_costly, now);
            self.begun[evaluation.tenant].push((now, is_costly));
            // An unexpectedly costly evaluation stops for others.
            let until = if is_costly { evaluation.cost } else { evaluation.cost.min(LIMIT / SURPRISE + LEAST) };
            self.running.insert(number, (now + until, until, is_costly, evaluation));
        }
    }

    /// Checks the bound: an evaluation waits for the running evaluations, and for at most one of each other namespace
    /// and thread. It waits for more of another namespace only until that namespace has used as much time as its own.
    /// Only other costly evaluations are counted for a costly one, because cheap evaluations overtake it.
    fn check_wait(&mut self, evaluation: &Evaluation, is_costly: bool, now: Instant) {
        let Some(shares) = &evaluation.shares else { return };
        // A shorter evaluation of its own namespace was first.
        if self.begun[evaluation.tenant].last().is_some_and(|(at, _)| *at >= evaluation.since) {
            return;
        }
        let name = &self.tenants[evaluation.tenant].name;
        let most = self.threads.saturating_sub(1).max(1);
        for (other, begun) in self.begun.iter().enumerate().filter(|(other, _)| *other != evaluation.tenant) {
            let since = begun.iter().rev().take_while(|(at, _)| *at >= evaluation.since);
            let passed = since.filter(|(_, costly)| *costly || !is_costly).count();
            let ahead = shares[name].saturating_sub(shares[&self.tenants[other].name]);
            let bound = most + ahead.as_micros().div_ceil(LEAST.as_micros()) as usize;
            let kind = self.tenants[other].kind;
            assert!(passed <= bound, "{name} waited for {passed} evaluations of {kind:?}, and for {bound} at most");
        }
        self.checked += 1;
        if self.tenants[evaluation.tenant].kind == Kind::Honest {
            self.longest = self.longest.max(now - evaluation.since);
        }
    }

    fn run(&mut self, begin: Instant, random: &mut fastrand::Rng) {
        let mut now = begin;
        while now < begin + LENGTH {
            for tenant in 0..self.tenants.len() {
                while self.tenants[tenant].open < self.tenants[tenant].most_open() && self.tenants[tenant].next <= now {
                    self.submit(tenant, now, random);
                }
            }
            self.begin_all(now);
            let arrivals =
                self.tenants.iter().filter(|tenant| tenant.open < tenant.most_open()).map(|tenant| tenant.next);
            let ends = self.running.values().map(|(at, ..)| *at);
            now = arrivals.chain(ends).min().unwrap();
            let ended: Vec<u64> = self.running.iter().filter(|(_, (at, ..))| *at <= now).map(|(id, _)| *id).collect();
            for number in ended {
                let (at, until, is_costly, evaluation) = self.running.remove(&number).unwrap();
                let Evaluation { tenant, subject, cost, .. } = &evaluation;
                if !is_costly && until > LIMIT / SURPRISE {
                    self.surprised.insert(subject.namespace.clone(), at);
                }
                self.schedule.end(number, until, at);
                if until < *cost {
                    let subject = subject.clone();
                    self.schedule.submit(subject, Evaluation { shares: None, since: at, ..evaluation }, at);
                } else {
                    self.tenants[*tenant].open -= 1;
                    self.tenants[*tenant].next = now + self.tenants[*tenant].pause(random);
                }
            }
        }
    }
}

fn simulate(seed: u64) -> Simulation {
    let mut random = fastrand::Rng::with_seed(seed);
    let begin = Instant::now();
    let tenant = |(number, kind): (usize, Kind), random: &mut fastrand::Rng| Tenant {
        name: format!("{kind:?}-{number}"),
        kind,
        submitted: 0,
        open: 0,
        next: begin + milliseconds(random.u64(0..2000)),
    };
    let mut kinds = vec![Kind::Honest; random.usize(1..4)];
    kinds.extend((0..random.usize(1..=10)).map(|_| HOSTILE[random.usize(0..HOSTILE.len())]));
    let tenants: Vec<Tenant> = kinds.into_iter().enumerate().map(|numbered| tenant(numbered, &mut random)).collect();
    let mut simulation = Simulation {
        schedule: Schedule::new(LIMIT),
        threads: if random.bool() { 2 } else { random.usize(3..=4) },
        begun: vec![Vec::new(); tenants.len()],
        tenants,
        running: BTreeMap::new(),
        surprised: BTreeMap::new(),
        longest: Duration::ZERO,
        checked: 0,
    };
    simulation.run(begin, &mut random);
    simulation
}

#[test]
fn no_tenant_waits_for_more_than_a_bounded_number_of_others() {
    let mut checked = 0;
    for seed in 0..SEEDS {
        let simulation = std::panic::catch_unwind(|| simulate(seed)).unwrap_or_else(|_| panic!("the seed is {seed}"));
        checked += simulation.checked;
        let kinds: BTreeSet<String> = simulation.tenants.iter().map(|tenant| format!("{:?}", tenant.kind)).collect();
        // Each other namespace has one unexpected cost at first, and stops for others then.
        let bound = LIMIT / SURPRISE * u32::try_from(simulation.tenants.len()).unwrap();
        assert!(simulation.longest <= bound, "seed {seed}, beside {kinds:?}: {:?}", simulation.longest);
    }
    println!("tried: {checked} waiting evaluations of random tenants");
}

fn subject(namespace: &str, uid: &str) -> Subject {
    let text = |text: &str| text.to_owned();
    Subject { kind: text("Workflow"), namespace: text(namespace), name: text(uid), uid: text(uid), generation: 1 }
}

#[test]
fn other_work_for_a_namespace_is_charged_to_it() {
    let (mut schedule, now) = (Schedule::new(LIMIT), Instant::now());
    schedule.submit(subject("parses", "1"), "parses", now);
    schedule.submit(subject("waits", "2"), "waits", now);
    schedule.charge("parses", milliseconds(20), now);
    let order: Vec<_> = std::iter::from_fn(|| schedule.begin_next(4, now)).map(|(_, job)| job).collect();
    assert_eq!(order, ["waits", "parses"]);
}

#[test]
fn short_evaluations_go_first_until_a_longer_one_has_waited() {
    let (mut schedule, mut now) = (Schedule::new(LIMIT), Instant::now());
    for (uid, cost) in [("long", 40), ("short", 1)] {
        let number = schedule.begin_alone(subject("a", uid), now);
        schedule.end(number, milliseconds(cost), now);
        schedule.submit(subject("a", uid), uid, now);
    }
    let (number, first) = schedule.begin_next(2, now).unwrap();
    schedule.end(number, milliseconds(1), now);
    now += PRIORITY_WAIT;
    schedule.submit(subject("a", "short"), "short", now);
    assert_eq!((first, schedule.begin_next(2, now).unwrap().1), ("short", "long"));
}
