//! The environment of the attacks: two grounds, and a client for every actor.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};

use http::HeaderValue;
use http::header::HeaderMap;
use k8s_openapi::api::authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec};
use k8s_openapi::api::authorization::v1::SubjectAccessReview;
use k8s_openapi::api::core::v1::{Pod, Secret, ServiceAccount};
use kube::api::{Api, DynamicObject, PostParams};
use kube::core::ObjectMeta;
use kube::runtime::wait::await_condition;
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use signoff_api::Workflow;
use signoff_tests::attacks::{Actor, Ground, Token};
use signoff_tests::control_plane::{Cluster, Namespace, OPERATOR_ACCOUNT, OPERATOR_NAMESPACE, named};

use crate::asked;
use crate::policies::harness::workflow;

/// The namespaces of one chapter, one for each ground, with the clients of all actors.
pub(super) struct Harness {
    cluster: Cluster,
    careless: Namespace,
    as_shipped: Namespace,
    /// The uid of the Workflow `owner` on each ground.
    owners: [String; 2],
    clients: HashMap<&'static str, Client>,
    stolen: HashMap<Token, Client>,
}

const STATUS: &str = "status@example.com";
const NEIGHBOUR: &str = "neighbour@example.com";
const COLLECTOR: &str = "system:serviceaccount:kube-system:generic-garbage-collector";

impl Harness {
    pub(super) async fn open(actors: &[Actor]) -> Self {
        let cluster = Cluster::shared().unwrap();
        let (careless, as_shipped) =
            tokio::try_join!(cluster.namespace("careless"), cluster.namespace("as-shipped")).unwrap();
        let owners = Default::default();
        let mut harness =
            Self { cluster, careless, as_shipped, owners, clients: HashMap::new(), stolen: HashMap::new() };
        harness.grant().await;
        for name in ["admin", "alice", "bob", "carol", "flux", "dana", "viktor", "nina", "adam", "mallory"] {
            harness.clients.insert(name, harness.cluster.token_client(name).await.unwrap());
        }
        for (ground, namespace) in [&harness.careless, &harness.as_shipped].into_iter().enumerate() {
            let api: Api<Workflow> = Api::namespaced(harness.clients["dana"].clone(), &namespace.name);
            let owner = serde_json::from_value(workflow("owner", json!({"suspend": true}))).unwrap();
            harness.owners[ground] = api.create(&PostParams::default(), &owner).await.unwrap().uid().unwrap();
        }
        harness.clients.insert("operator", harness.cluster.operator_client().await.unwrap());
        for actor in actors {
            if let Actor::Stolen(token) = actor
                && *token != Token::Impersonated
                && !harness.stolen.contains_key(token)
            {
                let text = harness.obtain_token(*token).await;
                harness.stolen.insert(*token, harness.connect_with_token(&text).await);
            }
        }
        harness
    }

    pub(super) fn namespace(&self, ground: Ground) -> &str {
        match ground {
            Ground::Careless => &self.careless.name,
            Ground::AsShipped => &self.as_shipped.name,
        }
    }

    /// Returns the uid of the Workflow that owns the ground's Blobs: the garbage collector removes objects without
    /// owners.
    pub(super) fn owner(&self, ground: Ground) -> &str {
        &self.owners[usize::from(ground == Ground::AsShipped)]
    }

    pub(super) fn operator(&self) -> &Client {
        &self.clients["operator"]
    }

    /// Returns the user name of an actor in the API server.
    pub(super) fn user(&self, actor: Actor, ground: Ground) -> String {
        match actor {
            Actor::StatusHolder => STATUS.to_owned(),
            Actor::OperatorsNeighbour => NEIGHBOUR.to_owned(),
            Actor::ServiceAccount => format!("system:serviceaccount:{}:bot", self.namespace(ground)),
            Actor::Stolen(Token::Neighbour) => format!("system:serviceaccount:{OPERATOR_NAMESPACE}:default"),
            Actor::Operator | Actor::Stolen(_) => {
                format!("system:serviceaccount:{OPERATOR_NAMESPACE}:{OPERATOR_ACCOUNT}")
            }
            Actor::GarbageCollector => COLLECTOR.to_owned(),
            Actor::Named(name) => name.to_owned(),
            Actor::Through(_) => "alice@example.com".to_owned(),
            _ => named(actor.cast().unwrap()).unwrap().user.to_owned(),
        }
    }

    /// Returns the client of an actor, and the headers with which an administrator impersonates an actor without one.
    pub(super) fn connection(&self, actor: Actor, ground: Ground) -> (&Client, HeaderMap) {
        let mut headers = HeaderMap::new();
        let client = match actor {
            Actor::Operator => self.operator(),
            Actor::Stolen(token) if token != Token::Impersonated => &self.stolen[&token],
            _ => match actor.cast() {
                Some(name) => &self.clients[name],
                None => {
                    // The header is set as bytes, because user names may be non-ASCII.
                    let user = self.user(actor, ground);
                    headers.insert("impersonate-user", HeaderValue::from_bytes(user.as_bytes()).unwrap());
                    let groups: &[&'static str] = match actor {
                        Actor::Named(_) => &["finance", "staff"],
                        Actor::Through(_) => &["finance", "finance-leads"],
                        _ => &["staff"],
                    };
                    for group in groups {
                        headers.append("impersonate-group", HeaderValue::from_static(group));
                    }
                    if let Actor::Through(channel) = actor {
                        let name = http::HeaderName::from_static("impersonate-extra-signoff.dev%2fchannel");
                        headers.insert(name, HeaderValue::from_static(channel));
                    }
                    &self.clients["admin"]
                }
            },
        };
        (client, headers)
    }

    /// Grants what a careless administrator might grant, and the rights of the holder of `approvals/status` on both
    /// grounds.
    async fn grant(&self) {
        let everything = ["get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"];
        let status = json!({"apiGroups": ["signoff.dev"], "resources": ["approvals/status", "workflows/status"], "verbs": everything});
        let ours = [
            "approvals",
            "approvals/status",
            "approvals/scale",
            "approvals/finalizers",
            "blobs",
            "workflows",
            "workflows/status",
        ];
        let careless = json!([
            {"apiGroups": ["signoff.dev"], "resources": ours, "verbs": everything},
            {"apiGroups": [""], "resources": ["pods", "pods/status", "pods/resize", "pods/ephemeralcontainers"], "verbs": everything},
        ]);
        let everybody = json!({"kind": "Group", "name": "system:authenticated"});
        let by_name = |user: &str| json!({"kind": "User", "name": user});
        let approve = json!([{"apiGroups": ["signoff.dev"], "resources": ["approvals"], "verbs": ["approve"]}]);
        let (here, there) = (&self.careless.name, &self.as_shipped.name);
        self.bind(here, careless, everybody).await;
        self.bind(here, approve, json!({"kind": "Group", "name": "finance"})).await;
        self.bind(there, json!([status]), by_name(STATUS)).await;
        let admin = json!({"kind": "ClusterRole", "name": "admin"});
        self.bind_to(OPERATOR_NAMESPACE, admin, by_name(NEIGHBOUR)).await;
        // The role admin had these rights until Kubernetes 1.22, and clusters that were upgraded since still grant
        // them.
        let addresses = json!([{"apiGroups": ["", "discovery.k8s.io"], "resources": ["endpoints", "endpointslices"], "verbs": everything}]);
        self.bind(OPERATOR_NAMESPACE, addresses, by_name(NEIGHBOUR)).await;
        self.wait_until_allowed(here, "mallory@example.com", "deletecollection", "approvals").await;
        self.wait_until_allowed(here, "nobody@example.com", "approve", "approvals").await;
        self.wait_until_allowed(there, STATUS, "patch", "approvals/status").await;
        self.wait_until_allowed(OPERATOR_NAMESPACE, NEIGHBOUR, "create", "pods").await;
        self.wait_until_allowed(OPERATOR_NAMESPACE, NEIGHBOUR, "create", "endpoints").await;
    }

    async fn bind(&self, namespace: &str, rules: Value, subject: Value) {
        let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
            "metadata": {"generateName": "attacks-"}, "rules": rules});
        let role = self.create(namespace, role).await;
        self.bind_to(namespace, json!({"kind": "Role", "name": role.name_any()}), subject).await;
    }

    async fn bind_to(&self, namespace: &str, role: Value, mut subject: Value) {
        let group = json!("rbac.authorization.k8s.io");
        let mut role = role;
        role["apiGroup"] = group.clone();
        subject["apiGroup"] = group;
        let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
            "metadata": {"generateName": "attacks-"}, "roleRef": role, "subjects": [subject]});
        self.create(namespace, binding).await;
    }

    async fn create(&self, namespace: &str, object: Value) -> DynamicObject {
        let object: DynamicObject = serde_json::from_value(object).unwrap();
        let types = object.types.as_ref().unwrap();
        let (group, version) = types.api_version.split_once('/').unwrap();
        let kind = kube::core::GroupVersionKind::gvk(group, version, &types.kind);
        let resource = kube::api::ApiResource::from_gvk(&kind);
        let api: Api<DynamicObject> = Api::namespaced_with(self.cluster.admin().await.unwrap(), namespace, &resource);
        api.create(&PostParams::default(), &object).await.unwrap()
    }

    /// Waits until the API server allows a user to use a verb on a resource.
    async fn wait_until_allowed(&self, namespace: &str, user: &str, verb: &str, resource: &str) {
        let (resource, sub) = resource.split_once('/').unwrap_or((resource, ""));
        let group = if ["pods", "endpoints"].contains(&resource) { "" } else { "signoff.dev" };
        let question: SubjectAccessReview = serde_json::from_value(json!({"spec": {
            "user": user, "groups": ["system:authenticated", "finance"],
            "resourceAttributes": {"namespace": namespace, "group": group, "resource": resource, "subresource": sub, "verb": verb},
        }}))
        .unwrap();
        asked::wait_until_allowed(&self.cluster, &question).await;
    }

    async fn connect_with_token(&self, token: &str) -> Client {
        let mut file = kube::config::Kubeconfig::read_from(self.cluster.kubeconfig()).unwrap();
        let login: kube::config::AuthInfo = serde_json::from_value(json!({"token": token})).unwrap();
        for named in &mut file.auth_infos {
            named.auth_info = Some(login.clone());
        }
        let config = kube::Config::from_custom_kubeconfig(file, &Default::default()).await.unwrap();
        Client::try_from(config).unwrap()
    }

    /// Returns a token as an attacker might obtain it.
    async fn obtain_token(&self, kind: Token) -> String {
        let admin = self.cluster.admin().await.unwrap();
        let secrets: Api<Secret> = Api::namespaced(admin.clone(), OPERATOR_NAMESPACE);
        let metadata = ObjectMeta { generate_name: Some("stolen-".to_owned()), ..ObjectMeta::default() };
        match kind {
            Token::Created => request_token(&admin, OPERATOR_ACCOUNT, None).await,
            Token::BoundToSecret => {
                let secret = Secret { metadata, ..Secret::default() };
                let secret = secrets.create(&PostParams::default(), &secret).await.unwrap();
                request_token(&admin, OPERATOR_ACCOUNT, Some(("Secret", secret.metadata))).await
            }
            Token::Secret => {
                let mut secret = Secret { metadata, ..Secret::default() };
                secret.type_ = Some("kubernetes.io/service-account-token".to_owned());
                let account = ("kubernetes.io/service-account.name".to_owned(), OPERATOR_ACCOUNT.to_owned());
                secret.metadata.annotations = Some([account].into());
                let secret = secrets.create(&PostParams::default(), &secret).await.unwrap();
                let token = |secret: &Secret| secret.data.as_ref().and_then(|data| data.get("token").cloned());
                let name = secret.name_any();
                let has_one = |secret: Option<&Secret>| secret.and_then(token).is_some();
                let filled = await_condition(secrets, &name, has_one);
                let filled = tokio::time::timeout(std::time::Duration::from_secs(60), filled).await.unwrap().unwrap();
                String::from_utf8(filled.as_ref().and_then(token).unwrap().0).unwrap()
            }
            Token::Neighbour => {
                let pods: Api<Pod> = Api::namespaced(admin.clone(), OPERATOR_NAMESPACE);
                let spec = json!({"schedulerName": "never", "containers": [{"name": "c", "image": "c"}]});
                let pod = json!({"metadata": {"generateName": "neighbour-"}, "spec": spec});
                let pod = pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
                request_token(&admin, "default", Some(("Pod", pod.metadata))).await
            }
            Token::Impersonated => unreachable!("impersonation has no token"),
        }
    }
}

/// Requests a token, bound to nothing or to an object of the operator's namespace.
async fn request_token(admin: &Client, account: &str, bound: Option<(&str, ObjectMeta)>) -> String {
    let bound_object_ref = bound.map(|(kind, metadata)| BoundObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some(kind.to_owned()),
        name: metadata.name,
        uid: metadata.uid,
    });
    let spec = TokenRequestSpec { bound_object_ref, ..TokenRequestSpec::default() };
    let request = TokenRequest { spec: Some(spec), ..TokenRequest::default() };
    let accounts: Api<ServiceAccount> = Api::namespaced(admin.clone(), OPERATOR_NAMESPACE);
    let answer = accounts.create_token_request(account, &PostParams::default(), &request).await.unwrap();
    answer.status.and_then(|status| status.token).unwrap()
}

/// Returns the number of a case, unique in this process.
pub(super) fn number() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}
