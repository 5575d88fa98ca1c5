//! A new namespace with the cast's roles bound in it, which a test has for itself on a shared cluster. No role is bound
//! cluster-wide.

use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result, bail};
use futures::future::try_join_all;
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use k8s_openapi::api::core::v1;
use k8s_openapi::api::rbac::v1::{RoleBinding, RoleRef, Subject};
use kube::Client;
use kube::api::{Api, DeleteParams, ObjectMeta, PostParams};

use super::cluster::Cluster;
use super::people::CAST;
use super::plane::wait_for_default_service_account;

const RBAC: &str = "rbac.authorization.k8s.io";

/// A namespace for one test or one demo. It stays until the end of the cluster unless it is deleted.
#[derive(Clone)]
pub struct Namespace {
    /// The generated name, such as `runs-x7k2p`.
    pub name: String,
    admin: Client,
}

impl Cluster {
    /// Creates `<prefix>-xxxxx`, waits for its default service account, binds every person's roles, and waits until the
    /// bindings are effective.
    ///
    /// # Errors
    /// The API server refuses one of the objects.
    pub async fn namespace(&self, prefix: &str) -> Result<Namespace> {
        let admin = self.admin().await?;
        let metadata = ObjectMeta { generate_name: Some(format!("{prefix}-")), ..ObjectMeta::default() };
        let created = Api::<v1::Namespace>::all(admin.clone())
            .create(&PostParams::default(), &v1::Namespace { metadata, ..v1::Namespace::default() })
            .await?;
        let namespace = Namespace { name: created.metadata.name.context("a namespace without a name")?, admin };
        tokio::try_join!(wait_for_default_service_account(&namespace.admin, &namespace.name), namespace.bind_cast())?;
        Ok(namespace)
    }
}

impl Namespace {
    /// Binds a ClusterRole to a user in this namespace and waits until the binding is effective.
    ///
    /// # Errors
    /// The API server refuses the binding.
    pub async fn bind(&self, cluster_role: &str, user: &str) -> Result<()> {
        self.create_binding(cluster_role, vec![user.to_owned()]).await?;
        self.wait_for_bindings().await
    }

    /// Begins the deletion of the namespace with everything in it, and does not wait for its end.
    ///
    /// # Errors
    /// The API server refuses it.
    pub async fn delete(&self) -> Result<()> {
        Api::<v1::Namespace>::all(self.admin.clone()).delete(&self.name, &DeleteParams::default()).await?;
        Ok(())
    }

    async fn bind_cast(&self) -> Result<()> {
        let mut roles: Vec<_> = CAST.iter().flat_map(|person| person.role.cluster_roles()).copied().collect();
        roles.sort_unstable();
        roles.dedup();
        let bindings = roles.into_iter().map(|role| {
            let members = CAST.iter().filter(|person| person.role.cluster_roles().contains(&role));
            self.create_binding(role, members.map(|person| person.user.to_owned()).collect())
        });
        try_join_all(bindings).await?;
        self.wait_for_bindings().await
    }

    async fn create_binding(&self, cluster_role: &str, users: Vec<String>) -> Result<()> {
        let subject =
            |name| Subject { api_group: Some(RBAC.to_owned()), kind: "User".to_owned(), name, namespace: None };
        let binding = RoleBinding {
            metadata: ObjectMeta { generate_name: Some(format!("{cluster_role}-")), ..ObjectMeta::default() },
            role_ref: RoleRef {
                api_group: Some(RBAC.to_owned()),
                kind: "ClusterRole".to_owned(),
                name: cluster_role.to_owned(),
            },
            subjects: Some(users.into_iter().map(subject).collect()),
        };
        Api::<RoleBinding>::namespaced(self.admin.clone(), &self.name).create(&PostParams::default(), &binding).await?;
        Ok(())
    }

    /// Waits until all earlier bindings are effective. The authorizer receives bindings through its own watch in the
    /// order of their writes. So all are effective once a last binding is, which is for a user that does not exist. No
    /// event tells when that is the case, so access reviews find out.
    async fn wait_for_bindings(&self) -> Result<()> {
        const MAX_REVIEWS: u32 = 500;
        static BINDINGS: AtomicU32 = AtomicU32::new(0);
        let nobody = format!("nobody:{}:{}", self.name, BINDINGS.fetch_add(1, Ordering::Relaxed));
        self.create_binding("view", vec![nobody.clone()]).await?;
        let question = SubjectAccessReview {
            spec: SubjectAccessReviewSpec {
                user: Some(nobody),
                resource_attributes: Some(ResourceAttributes {
                    namespace: Some(self.name.clone()),
                    verb: Some("get".to_owned()),
                    resource: Some("configmaps".to_owned()),
                    ..ResourceAttributes::default()
                }),
                ..SubjectAccessReviewSpec::default()
            },
            ..SubjectAccessReview::default()
        };
        let reviews: Api<SubjectAccessReview> = Api::all(self.admin.clone());
        for _ in 0..MAX_REVIEWS {
            let answer = reviews.create(&PostParams::default(), &question).await?;
            if answer.status.is_some_and(|status| status.allowed) {
                return Ok(());
            }
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
        bail!("role bindings in namespace {} are not in force after {MAX_REVIEWS} questions", self.name)
    }
}
