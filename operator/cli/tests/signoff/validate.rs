//! What `signoff validate` looks at in a folder, and what it leaves to others.
//! They must not read anything but what the program prints.

use std::fs;

use super::*;

#[test]
fn a_file_of_a_folder_is_left_to_others_only_where_none_of_its_documents_is_ours() {
    let home = Home::new();
    fs::create_dir(home.path().join("all")).unwrap();
    home.file("all/letter.yaml", LETTER);
    home.file("all/letter.answers.yaml", "review: approve\n");
    let ended = home.run(&["validate", "all"]).with(0);
    assert!(ended.err.contains("letter.answers.yaml: none of Signoff's objects: not checked"), "{ended:?}");
    home.run(&["validate", "all/letter.answers.yaml"]).with(3);
    // Beside a document of nobody's, ours is looked at all the same.
    let broken = LETTER.replace("prompt:", "promt:");
    assert_ne!(broken, LETTER);
    home.file("all/two.yaml", &format!("review: approve\n---\n{broken}"));
    let ended = home.run(&["validate", "all"]).with(3);
    assert!(ended.out.contains("two.yaml") && ended.out.contains("promt"), "{ended:?}");
}
