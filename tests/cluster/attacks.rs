//! Every attack of the table on a real API server, and its honest twin on the same object. The page
//! `docs/security/attacks.md` is rendered from the same table. No operator runs.

mod harness;
mod recreated;
mod run;

use signoff_tests::attacks::CHAPTERS;

/// Checks one chapter, and reports all of its failures by name.
async fn check_chapter(name: &str) {
    let chapter = CHAPTERS.iter().find(|chapter| chapter.name == name).unwrap();
    let attacks = chapter.attacks();
    let count = attacks.len();
    signoff_tests::tried(count, "attacks on the API server");
    let failures = run::run_attacks(attacks).await;
    assert!(failures.is_empty(), "{} of {count} attacks on {name}:\n{}", failures.len(), failures.join("\n"));
}

macro_rules! chapters {
    ($($name:ident)*) => {
        $(
            #[tokio::test]
            async fn $name() {
                check_chapter(stringify!($name)).await;
            }
        )*

        #[test]
        fn every_chapter_of_the_table_has_a_test() {
            let tried = [$(stringify!($name)),*];
            assert_eq!(tried.to_vec(), CHAPTERS.iter().map(|chapter| chapter.name).collect::<Vec<_>>());
        }
    };
}

chapters!(votes names delegation finality time payload limits encodings object status operator inbox children blobs shapes workflow);
