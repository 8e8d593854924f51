//! The pages of `docs/errors`.

use std::collections::BTreeSet;
use std::fs;

use memsluice::error::{Action, Code, Error};

use crate::support::{file_names, root};

/// Each code has a page with the four sections, and the page says what the code's action does.
#[test]
fn every_code_has_its_page() {
    let table = fs::read_to_string(root("docs/errors/README.md")).unwrap();
    let mut wanted = BTreeSet::from(["README.md".to_owned()]);
    for code in Code::ALL {
        let name = code.name();
        let status = format!("exit status {}", Error::new(*code, "").exit_status());
        let (done, row) = match code.action() {
            Action::DeadLetter => ("`dead-letters`", "dead letter".to_owned()),
            Action::Abort => ("rolled back and is tried again", "roll back, run again".to_owned()),
            Action::Rebuild => ("is rebuilt from what Kafka holds", "rebuild, run again".to_owned()),
            Action::RetrySame => ("is tried again", "retry, then posture".to_owned()),
            Action::Stop => (status.as_str(), format!("stop, {status}")),
        };
        let page =
            fs::read_to_string(root(&format!("docs/errors/{name}.md"))).unwrap_or_else(|e| panic!("{name}: {e}"));
        let text = page.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(page.starts_with(&format!("# {name}\n")), "{name}: the title is the code");
        for section in ["**Meaning.**", "**Cause.**", "**What memsluice did.**", "**What to do.**", "```sh"] {
            assert_eq!(page.matches(section).count(), 1, "{name}: {section}");
        }
        assert!(text.contains(done), "{name}: the page does not say '{done}'");
        assert!((12..=20).contains(&page.lines().count()), "{name}: {} lines", page.lines().count());
        assert!(table.contains(&format!("| [{name}]({name}.md) | {row} | ")), "{name}: row in the table, '{row}'");
        wanted.insert(format!("{name}.md"));
    }
    assert_eq!(file_names("docs/errors"), wanted, "a page is left over");
    assert_eq!(table.lines().filter(|l| l.starts_with("| [")).count(), Code::ALL.len());
}
