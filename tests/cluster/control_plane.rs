//! The test cluster itself: it answers, knows its people, and leaves no processes and files.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use k8s_openapi::api::authentication::v1::{SelfSubjectReview, UserInfo};
use kube::Client;
use kube::api::{Api, PostParams};
use signoff_tests::control_plane::{CAST, Cluster, Disguise, Signal, Supervised};

async fn who_am_i(client: Client) -> UserInfo {
    let answer = Api::<SelfSubjectReview>::all(client)
        .create(&PostParams::default(), &SelfSubjectReview::default())
        .await
        .unwrap();
    answer.status.unwrap().user_info.unwrap()
}

fn is_running(pid: u32) -> bool {
    // A process that has ended and was not waited for is still in the table, as a zombie.
    std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}

#[tokio::test]
async fn each_person_of_the_cast_has_their_user_name_and_groups() {
    let cluster = Cluster::shared().unwrap();
    for person in CAST {
        let me = who_am_i(cluster.token_client(person.name).await.unwrap()).await;
        assert_eq!(me.username.as_deref(), Some(person.user));
        let groups = me.groups.unwrap();
        assert!(
            person.groups.iter().all(|group| groups.iter().any(|mine| mine == group)),
            "{}: {groups:?}",
            person.name
        );
    }
}

#[tokio::test]
async fn an_impersonated_user_has_the_given_groups_and_extras() {
    let cluster = Cluster::shared().unwrap();
    let disguise = Disguise {
        user: "someone@example.com".into(),
        groups: vec!["finance".into()],
        extra: vec![("signoff.dev/channel".into(), "web".into())],
    };
    let me = who_am_i(cluster.disguised(disguise).await.unwrap()).await;
    assert_eq!(me.username.as_deref(), Some("someone@example.com"));
    assert!(me.groups.unwrap().contains(&"finance".to_owned()));
    assert_eq!(me.extra.unwrap()["signoff.dev/channel"], ["web"]);
}

#[tokio::test]
async fn kubectl_acts_as_the_named_person_by_context_and_by_file() {
    let cluster = Cluster::shared().unwrap();
    let by_file = cluster
        .kubectl(["auth", "whoami", "-o", "jsonpath={.status.userInfo.username}"])
        .person("alice")
        .run()
        .await
        .unwrap();
    assert_eq!(by_file.ok().unwrap(), "alice@example.com");
    let by_context = cluster
        .kubectl(["--context", "slash", "auth", "whoami", "-o", "jsonpath={.status.userInfo.username}"])
        .run()
        .await
        .unwrap();
    assert_eq!(by_context.ok().unwrap(), "oidc:a/b~c@x");
}

#[tokio::test]
async fn helm_reaches_the_cluster() {
    let cluster = Cluster::shared().unwrap();
    cluster.helm(["list", "--all-namespaces"]).run().await.unwrap().ok().unwrap();
}

#[tokio::test]
async fn a_fresh_namespace_grants_the_cast_their_roles_and_the_outsider_nothing() {
    let cluster = Cluster::shared().unwrap();
    let namespace = cluster.namespace("roles").await.unwrap();
    let may = async |person: &str, verb: &str, what: &str| {
        let asked =
            cluster.kubectl(["auth", "can-i", verb, what, "-n", &namespace.name]).person(person).run().await.unwrap();
        asked.stdout.trim() == "yes"
    };
    assert!(may("nina", "create", "configmaps").await);
    assert!(may("adam", "create", "rolebindings").await);
    assert!(!may("mallory", "get", "configmaps").await);
    assert!(!may("alice", "create", "configmaps").await);
}

#[tokio::test]
async fn processes_and_files_of_a_control_plane_end_with_it() {
    let cluster = Cluster::own().await.unwrap();
    let plane = cluster.plane().unwrap();
    let folder = plane.folder().to_owned();
    let pids: Vec<_> = plane.pids().into_iter().map(|(_, pid)| pid).collect();
    assert_eq!(pids.len(), 3);
    assert!(pids.iter().all(|&pid| is_running(pid)));
    drop(cluster);
    assert!(!pids.into_iter().any(is_running));
    assert!(!folder.exists());
}

#[test]
#[allow(clippy::print_stdout, reason = "how the owner tells the process id to the test")]
fn a_program_ends_with_its_owner_even_when_the_owner_is_killed() {
    const OWNER: &str = "SIGNOFF_TEST_OWNER_IN";
    // The owner is this test in another process: it starts a program and waits to be killed.
    if let Some(folder) = std::env::var_os(OWNER) {
        let sleeper =
            Supervised::start("sleep", Path::new("sleep"), ["600"], &[], &Path::new(&folder).join("log")).unwrap();
        println!("\npid {}", sleeper.pid());
        loop {
            std::thread::park();
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let mut owner = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "control_plane::a_program_ends_with_its_owner_even_when_the_owner_is_killed", "--nocapture"])
        .env(OWNER, folder.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(owner.stdout.take().unwrap()).lines();
    let pid: u32 =
        lines.find_map(|line| line.unwrap().strip_prefix("pid ").map(str::to_owned)).unwrap().parse().unwrap();
    assert!(is_running(pid));
    owner.kill().unwrap();
    owner.wait().unwrap();
    // The program is not a child of this process, so the kernel does not announce its end.
    for _ in 0..500 {
        if !is_running(pid) {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    panic!("process {pid} survived its owner");
}

#[tokio::test]
async fn a_frozen_program_continues_and_ends_by_signal() {
    let folder = tempfile::tempdir().unwrap();
    let mut sleeper = Supervised::start("sleep", Path::new("sleep"), ["600"], &[], &folder.path().join("log")).unwrap();
    sleeper.signal(Signal::Stop).unwrap();
    sleeper.signal(Signal::Cont).unwrap();
    let status = sleeper.terminate(std::time::Duration::from_secs(10)).await.unwrap();
    assert_eq!(status.code(), Some(128 + 15));
}

#[tokio::test]
async fn the_operators_token_is_bound_to_a_pod_and_can_be_renewed() {
    let cluster = Cluster::shared().unwrap();
    let me = who_am_i(cluster.operator_client().await.unwrap()).await;
    assert_eq!(me.username.as_deref(), Some("system:serviceaccount:signoff-system:signoff-operator"));

    let second = cluster.operator_identity("second-incarnation").await.unwrap();
    let me = who_am_i(second.client().await.unwrap()).await;
    assert_eq!(me.extra.unwrap()["authentication.kubernetes.io/pod-name"], ["second-incarnation"]);
    second.renew().await.unwrap();
    who_am_i(second.client().await.unwrap()).await;
}

#[tokio::test]
async fn the_cast_is_impersonated_on_an_existing_cluster() {
    let shared = Cluster::shared().unwrap();
    let existing = Cluster::existing(shared.kubeconfig(), "admin").await.unwrap();
    let me = who_am_i(existing.token_client("alice").await.unwrap()).await;
    assert_eq!(me.username.as_deref(), Some("alice@example.com"));
    assert!(me.groups.unwrap().contains(&"finance".to_owned()));
}

#[tokio::test]
async fn the_error_for_an_unknown_context_lists_the_contexts() {
    let shared = Cluster::shared().unwrap();
    let error = Cluster::existing(shared.kubeconfig(), "production").await.unwrap_err().to_string();
    assert!(error.contains("production") && error.contains("admin, dana"), "{error}");
}
