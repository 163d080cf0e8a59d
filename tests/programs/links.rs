//! What README and chapters point to is in the package.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

use std::{
    fs,
    path::{Path, PathBuf},
};

/// What stands behind `](`.
fn links(text: &str) -> impl Iterator<Item = &str> {
    text.split("](").skip(1).filter_map(|rest| rest.split(')').next())
}

fn is_code(link: &str) -> bool {
    link.contains("::") || !link.contains(['/', '.'])
}

fn chapters(root: &Path) -> Vec<PathBuf> {
    let docs = fs::read_dir(root.join("docs")).unwrap().map(|entry| entry.unwrap().path());
    docs.filter(|path| path.extension().is_some_and(|extension| extension == "md")).collect()
}

#[test]
fn each_link_of_the_readme_leads_to_a_file_of_the_package() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let manifest = fs::read_to_string(root.join("Cargo.toml")).unwrap();
    // Cargo writes it over several lines into the package.
    let packed = manifest.split("\ninclude = [").nth(1).unwrap().split(']').next().unwrap();
    let text = fs::read_to_string(root.join("README.md")).unwrap();
    assert!(!text.contains("://"), "an address outside");
    for link in links(&text) {
        let link = link.split('#').next().unwrap();
        assert!(root.join(link).exists(), "{link}");
        let top = link.split('/').next().unwrap();
        let pattern = if top == link && top.ends_with(".md") { "*.md" } else { top };
        assert!(packed.contains(&format!("\"/{pattern}\"")), "{link} is not packed");
    }
}

#[test]
fn each_file_that_a_chapter_names_is_there() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for chapter in chapters(root) {
        let text = fs::read_to_string(&chapter).unwrap();
        for link in links(&text).filter(|link| !is_code(link) && !link.contains("://")) {
            let link = link.split('#').next().unwrap();
            assert!(link.is_empty() || chapter.parent().unwrap().join(link).exists(), "{}: {link}", chapter.display());
        }
    }
}
