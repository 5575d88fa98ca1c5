//! Hostile tenants: each keeps its runs going in a namespace of its own, and replaces each run that ends. They have a
//! thread of their own, so that their work does not delay the measuring clients.
//!
//! **Invariant:** a tenant has one request and one vote in flight at a time, and creates at most four runs a second.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::time::Duration;

use anyhow::{Context, Result};
use futures::future::{join_all, try_join_all};
use serde_json::{Value, json};
use signoff_tests::control_plane::{Cluster, Namespace};
use tokio::sync::{mpsc, oneshot};

use super::load::{Load, MODEL, Site};
use super::specs_of_gates::long_vote;
use crate::crowd;
use crate::gates::ENDED;
use crate::sample;
use crate::server::Server;
use crate::watch::Watch;

/// The pause before a run is replaced.
const PAUSE: Duration = Duration::from_millis(250);
/// Phases in which a run goes on; in `Waiting` for people.
const OPEN: [&str; 4] = ["", "Pending", "Running", "Waiting"];

/// The counts of what hostile tenants did.
#[derive(Clone, Debug, Default)]
pub(super) struct Deeds {
    /// Created Workflows.
    pub(super) created: usize,
    /// Sent votes.
    pub(super) votes: usize,
    /// Ended runs by phase; quarantined runs as `Quarantined`.
    pub(super) ended: BTreeMap<String, usize>,
    /// The message of the first run that did not succeed.
    pub(super) first_message: Option<String>,
    /// Requests that the API server refused.
    pub(super) refused: usize,
    /// The error of the first write that the API server refused.
    pub(super) first_refusal: Option<String>,
}

/// Hostile tenants at work. Dropping them ends their thread.
pub(super) struct Hostile {
    stop: oneshot::Sender<()>,
    done: oneshot::Receiver<Result<Deeds>>,
    namespaces: Vec<Namespace>,
}

impl Hostile {
    /// Creates `count` tenants, and returns when each has created its runs.
    pub(super) async fn start(cluster: &Cluster, load: Load, count: usize) -> Result<Self> {
        let namespaces = try_join_all((0..count).map(|_| cluster.namespace("hostile"))).await?;
        let (stop, stopped) = oneshot::channel();
        let (send, done) = oneshot::channel();
        let (begun, mut begins) = mpsc::unbounded_channel();
        let (cluster, own_namespaces) = (cluster.clone(), namespaces.clone());
        std::thread::Builder::new().name("hostile".to_owned()).spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let deeds = runtime.context("a runtime of their own").and_then(|runtime| {
                let acting = act(&cluster, load, &own_namespaces, &begun, stopped);
                runtime.block_on(acting)
            });
            // The caller gave up, and has returned its own error.
            let _ = send.send(deeds);
        })?;
        for _ in 0..count {
            // If the tenants end first, [`Hostile::stop`] returns their error.
            if begins.recv().await.is_none() {
                break;
            }
        }
        Ok(Self { stop, done, namespaces })
    }

    /// Ends the tenants; the runs stay. Returns the counts of the tenants, and their namespaces.
    pub(super) async fn stop(self) -> Result<(Deeds, Vec<Namespace>)> {
        let _ = self.stop.send(());
        let deeds = self.done.await.context("the thread of the hostile tenants ended")??;
        Ok((deeds, self.namespaces))
    }
}

/// Lets one tenant act in each namespace until `stopped`, and returns their counts. Fails when a tenant fails.
async fn act(
    cluster: &Cluster,
    load: Load,
    namespaces: &[Namespace],
    begun: &mpsc::UnboundedSender<()>,
    stopped: oneshot::Receiver<()>,
) -> Result<Deeds> {
    let (report, mut reports) = mpsc::unbounded_channel();
    let tenants = namespaces.iter().enumerate();
    let tenants =
        try_join_all(tenants.map(|(number, namespace)| Tenant::new(cluster, load, number, namespace))).await?;
    let acting = join_all(tenants.iter().map(|tenant| tenant.act(begun, &report)));
    tokio::select! {
        // A tenant ends only with an error.
        ended = acting => { ended.into_iter().collect::<Result<Vec<()>>>()?; }
        _ = stopped => {}
    }
    let mut deeds = Deeds::default();
    while let Ok(deed) = reports.try_recv() {
        deeds.add(deed);
    }
    Ok(deeds)
}

/// An action or an observation of a tenant.
enum Deed {
    Created,
    Voted,
    Ended { phase: String, message: Option<String> },
    Refused(String),
}

impl Deeds {
    fn add(&mut self, deed: Deed) {
        match deed {
            Deed::Created => self.created += 1,
            Deed::Voted => self.votes += 1,
            Deed::Ended { phase, message } => {
                if phase != "Succeeded" {
                    self.first_message = self.first_message.take().or(message);
                }
                *self.ended.entry(phase).or_default() += 1;
            }
            Deed::Refused(why) => {
                self.refused += 1;
                self.first_refusal.get_or_insert(why);
            }
        }
    }
}

/// One hostile tenant.
struct Tenant {
    load: Load,
    requester: kube::Client,
    /// The voters: each votes in their own name.
    voters: Vec<(String, kube::Client)>,
    admin: kube::Client,
    server: Server,
    workflows: String,
    approvals: String,
}

impl Tenant {
    async fn new(cluster: &Cluster, load: Load, number: usize, namespace: &Namespace) -> Result<Self> {
        let user = format!("hostile-{number}@example.com");
        namespace.bind("signoff-requester", &user).await?;
        let mut voters = Vec::new();
        for voter in 0..load.voters() {
            let user = format!("voter-{number}-{voter}@example.com");
            namespace.bind("signoff-approver", &user).await?;
            let client = cluster.client(&user, &[]).await?;
            voters.push((user, client));
        }
        // Another address for each tenant, so that the limit of calls to one host is not measured.
        let address = Ipv4Addr::new(127, 0, 1, u8::try_from(number + 1)?);
        let (turns, calls, latency) = MODEL;
        let [workflows, approvals] = ["workflows", "approvals"].map(|plural| sample::path(&namespace.name, plural));
        Ok(Self {
            load,
            requester: cluster.client(&user, &[]).await?,
            voters,
            admin: cluster.admin().await?,
            server: Server::start_at(address, turns, calls, latency).await?,
            workflows,
            approvals,
        })
    }

    /// Creates the runs of the load, sends to `begun`, and replaces each run that ends; votes at the same time. Returns
    /// only with an error.
    async fn act(&self, begun: &mpsc::UnboundedSender<()>, report: &mpsc::UnboundedSender<Deed>) -> Result<()> {
        let report_deed = |deed| {
            // The receiver lives until all tenants have ended.
            let _ = report.send(deed);
        };
        let (replace, mut to_replace) = mpsc::unbounded_channel();
        let selector = if self.load.can_be_set_aside() { "" } else { ENDED };
        let watch = Watch::open(&self.admin, &self.workflows, selector).await?;
        let mut known = BTreeSet::new();
        let watching = watch.until(|seen| {
            let (name, status) = (seen.object.metadata.name, seen.object.status);
            let phase = if status.has("Quarantined") { "Quarantined".to_owned() } else { status.phase };
            if !OPEN.contains(&phase.as_str()) && known.insert(name.clone()) {
                report_deed(Deed::Ended { phase, message: status.message });
                let _ = replace.send(name);
            }
            Ok(false)
        });
        let replacing = async {
            for index in 0..self.load.runs() {
                self.create(index, &report_deed).await;
            }
            let _ = begun.send(());
            let mut next = self.load.runs();
            while let Some(name) = to_replace.recv().await {
                tokio::time::sleep(PAUSE).await;
                let path = format!("{}/{name}", self.workflows);
                if let Err(error) = crowd::delete(&self.requester, &path).await {
                    report_deed(Deed::Refused(format!("{error:#}")));
                }
                self.create(next, &report_deed).await;
                next += 1;
            }
            Ok(())
        };
        tokio::try_join!(watching, replacing, self.vote(&report_deed)).map(|_| ())
    }

    /// Creates a run, and tries again until the API server accepts it.
    async fn create(&self, index: usize, report_deed: &impl Fn(Deed)) {
        let mut spec = self.load.spec(&Site { server: &self.server, voters: &self.voter_names() });
        // Admission stamps the requester if the name is empty.
        spec["requestedBy"] = json!("");
        let object = json!({
            "apiVersion": "signoff.dev/v1alpha1", "kind": "Workflow", "metadata": {"name": sample::name(index)}, "spec": spec,
        });
        let body = object.to_string().into_bytes();
        while let Err(error) = crowd::post(&self.requester, &self.workflows, body.clone()).await {
            report_deed(Deed::Refused(format!("{error:#}")));
            tokio::time::sleep(PAUSE).await;
        }
        report_deed(Deed::Created);
    }

    fn voter_names(&self) -> Vec<String> {
        self.voters.iter().map(|(name, _)| name.clone()).collect()
    }

    /// Sends all votes to each open Approval, one after another.
    async fn vote(&self, report_deed: &impl Fn(Deed)) -> Result<()> {
        if self.voters.is_empty() {
            return Ok(());
        }
        let (ask, mut asked) = mpsc::unbounded_channel();
        let mut known = BTreeSet::new();
        let watching = Watch::open(&self.admin, &self.approvals, "").await?.until(|seen| {
            let name = seen.object.metadata.name;
            if known.insert(name.clone()) {
                let _ = ask.send(name);
            }
            Ok(false)
        });
        let voting = async {
            while let Some(approval) = asked.recv().await {
                let path = format!("{}/{approval}", self.approvals);
                for (name, client) in &self.voters {
                    let body: Value = long_vote(name);
                    match crowd::patch(client, &path, body.to_string().into_bytes()).await {
                        Ok(_) => report_deed(Deed::Voted),
                        Err(error) => report_deed(Deed::Refused(format!("{error:#}"))),
                    }
                }
            }
            Ok(())
        };
        tokio::try_join!(watching, voting).map(|_| ())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deeds_keep_the_first_refusal_and_the_first_message_of_what_failed() {
        let ended =
            |phase: &str, message: &str| Deed::Ended { phase: phase.to_owned(), message: Some(message.to_owned()) };
        let mut deeds = Deeds::default();
        for deed in [
            Deed::Created,
            ended("Succeeded", "done"),
            ended("Failed", "one"),
            ended("Failed", "two"),
            Deed::Refused("busy".to_owned()),
            Deed::Refused("later".to_owned()),
        ] {
            deeds.add(deed);
        }
        assert_eq!((deeds.created, deeds.refused), (1, 2));
        assert_eq!(deeds.ended, BTreeMap::from([("Failed".to_owned(), 2), ("Succeeded".to_owned(), 1)]));
        assert_eq!((deeds.first_message.as_deref(), deeds.first_refusal.as_deref()), (Some("one"), Some("busy")));
    }
}
