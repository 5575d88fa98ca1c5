//! The kinds as the controller decodes them: the parts of the JSON that are kept, and the properties of Workflows and
//! Approvals that reconciles and caches need.
//!
//! **Invariant:** fields that are not decoded cause no failure. In particular, `managedFields` is skipped at any depth.

use std::{borrow::Cow, collections::BTreeMap, fmt, sync::Arc};

use k8s_openapi::{
    api::core::v1::Namespace,
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time},
};
use kube::{Resource, ResourceExt, core::NamespaceResourceScope};
use serde::{
    Deserialize, Deserializer, Serialize,
    de::{DeserializeOwned, IgnoredAny},
};
use signoff_api::{Approval, ApprovalPolicy, ApprovalStatus, ClusterApprovalPolicy, Moment, Workflow, WorkflowStatus};

/// A kind that can be read and watched.
pub trait DecodedKind: Resource<DynamicType = ()> + Clone + fmt::Debug + Send + Sync + 'static {
    /// The kind as objects name it, such as `Workflow`.
    const KIND: &'static str;
    /// The label that watched objects have, or `None` to watch all objects.
    const SELECTOR: Option<&'static str> = None;

    /// Decodes the parts of an object that the controller needs.
    ///
    /// # Errors
    /// The object does not match the schema of its kind.
    fn read<'de, D: Deserializer<'de>>(from: D) -> Result<Self, D::Error>;
}

/// A kind whose objects are in namespaces.
pub trait NamespacedKind: DecodedKind + Resource<Scope = NamespaceResourceScope> {}

impl<K: DecodedKind + Resource<Scope = NamespaceResourceScope>> NamespacedKind for K {}

/// A kind that is reconciled.
pub trait ReconciledKind: NamespacedKind + Serialize + PartialEq {
    /// The status type.
    type Status: DeserializeOwned + Serialize + Clone + Default + PartialEq + Send + Sync;

    /// Returns the status, if set.
    fn status(&self) -> Option<&Self::Status>;
    /// Returns the object with this metadata and this status.
    #[must_use]
    fn stored_as(&self, metadata: ObjectMeta, status: Self::Status) -> Self;
    /// Returns the sequence number of a status, by which writes are fenced.
    fn seq(status: &Self::Status) -> i64;
    /// Whether the object has finished.
    fn is_finished(&self) -> bool;
    /// Returns the time at which the object is to be deleted, or `None` to keep the object.
    fn delete_at(&self) -> Option<Moment> {
        None
    }
    /// Returns the bytes of the long values of a Workflow, or 0.
    fn value_bytes(&self) -> u64 {
        0
    }
    /// Returns the name and uid of the Workflow that owns an Approval, or `None` for a Workflow.
    fn owner(&self) -> Option<(&str, &str)> {
        None
    }
}

impl DecodedKind for Workflow {
    const KIND: &'static str = "Workflow";

    fn read<'de, D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let ObjectParts { metadata, spec, status } = ObjectParts::deserialize(from)?;
        Ok(Self { metadata: metadata.into(), spec, status })
    }
}

impl DecodedKind for Approval {
    const KIND: &'static str = "Approval";

    fn read<'de, D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let ObjectParts { metadata, spec, status } = ObjectParts::deserialize(from)?;
        Ok(Self { metadata: metadata.into(), spec, status })
    }
}

impl DecodedKind for ClusterApprovalPolicy {
    const KIND: &'static str = "ClusterApprovalPolicy";

    fn read<'de, D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let ObjectParts { metadata, spec, .. } = ObjectParts::<_, IgnoredAny>::deserialize(from)?;
        Ok(Self { metadata: metadata.into(), spec })
    }
}

impl DecodedKind for ApprovalPolicy {
    const KIND: &'static str = "ApprovalPolicy";

    fn read<'de, D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let ObjectParts { metadata, spec, .. } = ObjectParts::<_, IgnoredAny>::deserialize(from)?;
        Ok(Self { metadata: metadata.into(), spec })
    }
}

/// Keeps only the name, the labels, and the times of creation and deletion.
impl DecodedKind for Namespace {
    const KIND: &'static str = "Namespace";

    fn read<'de, D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct NamespaceObject {
            metadata: Meta,
        }
        let Meta { name, uid, resource_version, creation_timestamp, deletion_timestamp, labels, .. } =
            NamespaceObject::deserialize(from)?.metadata;
        let times = ObjectMeta { creation_timestamp, deletion_timestamp, ..ObjectMeta::default() };
        Ok(Self { metadata: ObjectMeta { name, uid, resource_version, labels, ..times }, ..Self::default() })
    }
}

impl ReconciledKind for Workflow {
    type Status = WorkflowStatus;

    fn status(&self) -> Option<&WorkflowStatus> {
        self.status.as_ref()
    }
    fn stored_as(&self, metadata: ObjectMeta, status: WorkflowStatus) -> Self {
        Self { metadata, spec: self.spec.clone(), status: Some(status) }
    }
    fn seq(status: &WorkflowStatus) -> i64 {
        status.seq.number()
    }
    fn is_finished(&self) -> bool {
        self.status.as_ref().is_some_and(|status| status.phase.is_end())
    }
    fn delete_at(&self) -> Option<Moment> {
        let finished = self.status.as_ref().and_then(|status| status.finished_at)?;
        self.spec.ttl_after_finished.map(|ttl| finished.after(ttl.duration()))
    }
    fn value_bytes(&self) -> u64 {
        let bytes = self.status.as_ref().and_then(|status| status.value_bytes);
        bytes.and_then(|bytes| u64::try_from(bytes).ok()).unwrap_or(0)
    }
}

impl ReconciledKind for Approval {
    type Status = ApprovalStatus;

    fn status(&self) -> Option<&ApprovalStatus> {
        self.status.as_ref()
    }
    fn stored_as(&self, metadata: ObjectMeta, status: ApprovalStatus) -> Self {
        Self { metadata, spec: self.spec.clone(), status: Some(status) }
    }
    fn seq(status: &ApprovalStatus) -> i64 {
        status.seq
    }
    fn is_finished(&self) -> bool {
        self.status.as_ref().is_some_and(|status| status.phase.is_end() || status.outcome.is_some())
    }
    fn owner(&self) -> Option<(&str, &str)> {
        let workflow = &self.spec.request.workflow;
        Some((&workflow.name, &workflow.uid))
    }
}

/// The namespace and name of an object. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name {
    /// The namespace, or an empty text for an object without a namespace.
    pub namespace: Arc<str>,
    /// The name of the object, unique in its namespace for its kind.
    pub name: Arc<str>,
}

impl Name {
    /// Returns the name in this namespace.
    #[must_use]
    pub fn new(namespace: &str, name: &str) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }

    /// Returns the namespace and name of an object.
    #[must_use]
    pub fn of(object: &impl Resource) -> Self {
        let meta = object.meta();
        Self::new(meta.namespace.as_deref().unwrap_or_default(), meta.name.as_deref().unwrap_or_default())
    }

    /// Returns the name of another object in the same namespace.
    #[must_use]
    pub fn beside(&self, name: &str) -> Self {
        Self { namespace: Arc::clone(&self.namespace), name: name.into() }
    }

    /// Returns the kind and the name for messages, such as `Workflow finance/refund-4711`.
    #[must_use]
    pub fn as_a<K: DecodedKind>(&self) -> String {
        format!("{} {self}", K::KIND)
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// Returns the uid of an object, which every stored object has.
#[must_use]
pub fn uid(object: &impl ResourceExt) -> &str {
    object.meta().uid.as_deref().unwrap_or_default()
}

/// The part of an object's metadata that is decoded. Other fields are skipped at any depth.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Meta {
    name: Option<String>,
    namespace: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
    generation: Option<i64>,
    creation_timestamp: Option<Time>,
    deletion_timestamp: Option<Time>,
    deletion_grace_period_seconds: Option<i64>,
    labels: Option<BTreeMap<String, String>>,
    annotations: Option<BTreeMap<String, String>>,
    owner_references: Option<Vec<OwnerReference>>,
    finalizers: Option<Vec<String>>,
}

/// The annotation with the copy of the object that `kubectl apply` leaves: up to 256 KiB that nothing here reads. A
/// write of a status does not change the annotations on the API server.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

impl From<Meta> for ObjectMeta {
    fn from(mut meta: Meta) -> Self {
        if let Some(annotations) = &mut meta.annotations {
            annotations.remove(LAST_APPLIED);
        }
        Self {
            name: meta.name,
            namespace: meta.namespace,
            uid: meta.uid,
            resource_version: meta.resource_version,
            generation: meta.generation,
            creation_timestamp: meta.creation_timestamp,
            deletion_timestamp: meta.deletion_timestamp,
            deletion_grace_period_seconds: meta.deletion_grace_period_seconds,
            labels: meta.labels,
            annotations: meta.annotations,
            owner_references: meta.owner_references,
            finalizers: meta.finalizers,
            ..Self::default()
        }
    }
}

#[derive(Deserialize)]
struct ObjectParts<S, T> {
    metadata: Meta,
    spec: S,
    #[serde(default = "Option::default")]
    status: Option<T>,
}

/// An object that was decoded from JSON.
#[derive(Clone, Debug, PartialEq)]
pub struct Decoded<K>(pub K);

impl<'de, K: DecodedKind> Deserialize<'de> for Decoded<K> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        K::read(from).map(Self)
    }
}

/// The media types that ask for metadata only. A server that does not support the first type answers with the whole
/// object.
pub(crate) const METADATA_ONLY: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";

/// The answer to a write.
#[derive(Clone, Debug, PartialEq)]
pub enum WriteAnswer<K> {
    /// The object as it is stored.
    Whole(K),
    /// Only the metadata of the stored object.
    Metadata(Box<ObjectMeta>),
}

impl<K: DecodedKind> WriteAnswer<K> {
    /// Parses an answer of either form.
    pub(crate) fn parse(text: &str) -> serde_json::Result<Self> {
        #[derive(Deserialize)]
        struct PartialObject<'a> {
            #[serde(borrow, default)]
            kind: Cow<'a, str>,
            #[serde(default)]
            metadata: Meta,
        }
        let PartialObject { kind, metadata } = serde_json::from_str(text)?;
        if kind == "PartialObjectMetadata" {
            return Ok(Self::Metadata(Box::new(metadata.into())));
        }
        serde_json::from_str(text).map(|Decoded(object)| Self::Whole(object))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use super::*;

    #[test]
    fn deeply_nested_managed_fields_are_skipped() {
        let deep = format!("{}1{}", "{\"a\":".repeat(5000), "}".repeat(5000));
        let text = format!(
            r#"{{"apiVersion":"signoff.dev/v1alpha1","kind":"Workflow","metadata":{{"name":"w","namespace":"n","uid":"u","managedFields":[{{"fieldsV1":{deep}}}]}},"spec":{{"requestedBy":"dana","steps":[]}}}}"#
        );
        let Decoded(workflow): Decoded<Workflow> = serde_json::from_str(&text).unwrap();
        assert_eq!(Name::of(&workflow), Name::new("n", "w"));
    }
    #[test]
    fn the_times_of_a_namespace_are_kept() {
        // They distinguish a new namespace from an old one of the same name that is being deleted.
        let [created, deleted] = ["2026-11-22T12:00:00Z", "2026-11-22T13:00:00Z"];
        let text = format!(
            r#"{{"kind":"Namespace","metadata":{{"name":"n","uid":"u","creationTimestamp":"{created}","deletionTimestamp":"{deleted}"}}}}"#
        );
        let Decoded(namespace): Decoded<Namespace> = serde_json::from_str(&text).unwrap();
        let time = |time: Option<Time>| time.unwrap().0.to_string();
        let ObjectMeta { creation_timestamp, deletion_timestamp, .. } = namespace.metadata;
        assert_eq!([time(creation_timestamp), time(deletion_timestamp)], [created, deleted]);
    }

    #[test]
    fn an_answer_is_parsed_as_an_object_or_as_metadata() {
        let metadata = r#"{"name":"w","namespace":"n","uid":"u","resourceVersion":"7","managedFields":[{"a":1}]}"#;
        let whole = format!(
            r#"{{"kind":"Workflow","metadata":{metadata},"spec":{{"requestedBy":"dana","steps":[]}},"status":{{"seq":3}}}}"#
        );
        let partial =
            format!(r#"{{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{metadata}}}"#);
        let WriteAnswer::Whole(whole) = WriteAnswer::<Workflow>::parse(&whole).unwrap() else { panic!("it is whole") };
        assert_eq!(whole.status.map(|status| status.seq), Some(signoff_api::Seq::from(3)));
        assert_eq!(WriteAnswer::<Workflow>::parse(&partial).unwrap(), WriteAnswer::Metadata(Box::new(whole.metadata)));
        assert!(WriteAnswer::<Workflow>::parse(&partial[..partial.len() - 1]).is_err(), "it is cut off");
        assert!(WriteAnswer::<Workflow>::parse(r#"{"kind":"Workflow","metadata":{"name":"w"}}"#).is_err(), "no spec");
    }
}
