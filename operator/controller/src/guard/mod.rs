//! The guard: whether the admission policies that vouch for decisions are in force, exactly as this build ships
//! them. While they are not, nothing is honoured.
//!
//! It may not install or repair anything, and never guesses: what cannot be read is not in force.

mod compare;
mod difference;
mod read;

use std::{collections::BTreeSet, fmt, sync::Arc, time::Duration};

use futures::{FutureExt, Stream, StreamExt, stream};
use k8s_openapi::{
    api::admissionregistration::v1::{
        MutatingAdmissionPolicy, MutatingAdmissionPolicyBinding, ValidatingAdmissionPolicy,
        ValidatingAdmissionPolicyBinding,
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, Client, Resource, ResourceExt,
    core::PartialObjectMeta,
    runtime::{WatchStreamExt, watcher},
};
use tokio::sync::watch;

use crate::{error::plain, metrics::Shared};

/// How an operator knows that decisions are vouched for.
#[derive(Clone, Debug)]
pub enum GuardMode {
    /// By reading what is in force.
    Checked,
    /// By being told so, with this epoch: for tests without admission.
    Assumed(String),
}

/// How the guard stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Nothing was read yet.
    Unknown,
    /// In force as shipped.
    InForce {
        /// Moves whenever any of the guard's objects is changed or made anew.
        epoch: Arc<str>,
    },
    /// Not in force: each entry says what is wrong, with its remedy.
    Broken(Arc<[String]>),
}

/// For people.
impl fmt::Display for Standing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown => f.write_str("the admission policies have not been read yet"),
            Self::InForce { epoch } => write!(f, "the admission policies are in force (epoch {epoch})"),
            Self::Broken(why) => write!(f, "no decision is honoured: {}", why.join("; ")),
        }
    }
}

impl Standing {
    fn broken(why: impl Into<String>) -> Self {
        Self::Broken([why.into()].into())
    }

    /// Whether decisions are vouched for.
    #[must_use]
    pub fn is_in_force(&self) -> bool {
        matches!(self, Self::InForce { .. })
    }
}

/// Keeps `standing` true for as long as it runs: looks whenever one of the guard's objects changes.
pub(crate) async fn keep(client: Client, mode: GuardMode, standing: watch::Sender<Standing>, metrics: Shared) {
    if let GuardMode::Assumed(epoch) = mode {
        metrics.guarded(true);
        standing.send_replace(Standing::InForce { epoch: epoch.into() });
        return std::future::pending().await;
    }
    let mutating = until_read(|| read::serves_mutating_policies(&client), &standing).await;
    let mut changes = changes(&client, mutating);
    loop {
        let (now, names) = until_read(|| compare::look(&client, mutating), &standing).await;
        metrics.guarded(now.is_in_force());
        tell(&standing, now);
        // One upgrade changes many objects: everything that has changed by now needs one look.
        loop {
            let Some(changed) = changes.next().await else { return };
            if changed.is_none_or(|name| names.contains(&name)) {
                break;
            }
        }
        while changes.next().now_or_never().flatten().is_some() {}
    }
}

fn tell(standing: &watch::Sender<Standing>, now: Standing) {
    standing.send_if_modified(|old| {
        let news = *old != now;
        if news {
            match &now {
                Standing::InForce { epoch } => tracing::info!(%epoch, "the admission policies are in force"),
                other => tracing::warn!("{other}"),
            }
            *old = now;
        }
        news
    });
}

/// Reads until that works. What was in force and cannot be read any more is not in force.
async fn until_read<T, F: Future<Output = Result<T, kube::Error>>>(
    read: impl Fn() -> F,
    standing: &watch::Sender<Standing>,
) -> T {
    let mut pause = Duration::from_millis(250);
    loop {
        match read().await {
            Ok(found) => return found,
            Err(error) => {
                tell(standing, Standing::broken(format!("the admission policies cannot be read: {}", plain(&error))))
            }
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(Duration::from_secs(30));
    }
}

/// Names of objects that changed; none where a whole list was read again, so that anything may have.
type Changes = stream::BoxStream<'static, Option<String>>;

fn changes(client: &Client, mutating: bool) -> Changes {
    let mut all: Vec<Changes> = vec![
        of::<ValidatingAdmissionPolicy>(client),
        of::<ValidatingAdmissionPolicyBinding>(client),
        of::<CustomResourceDefinition>(client),
    ];
    if mutating {
        all.push(of::<MutatingAdmissionPolicy>(client));
        all.push(of::<MutatingAdmissionPolicyBinding>(client));
    }
    stream::select_all(all).boxed()
}

fn of<K>(client: &Client) -> Changes
where
    K: Resource<DynamicType = ()> + Clone + serde::de::DeserializeOwned + fmt::Debug + Send + Sync + 'static,
{
    let events =
        watcher(Api::<PartialObjectMeta<K>>::all(client.clone()), watcher::Config::default()).default_backoff();
    names(events).boxed()
}

fn names<K: ResourceExt + Send>(
    events: impl Stream<Item = Result<watcher::Event<K>, watcher::Error>> + Send,
) -> impl Stream<Item = Option<String>> + Send {
    events.filter_map(|event| async move {
        match event {
            Ok(watcher::Event::Apply(object) | watcher::Event::Delete(object)) => Some(Some(object.name_any())),
            Ok(watcher::Event::InitDone) => Some(None),
            Ok(watcher::Event::Init | watcher::Event::InitApply(_)) | Err(_) => None,
        }
    })
}

/// The names of the guard's objects.
type Names = BTreeSet<String>;
