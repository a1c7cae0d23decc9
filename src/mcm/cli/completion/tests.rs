use rstest::rstest;

use super::words::{CompletionAnswer, NameQuery, ask};
use crate::{api::kinds::MACHINES, cli::args};

fn asked(line: &str) -> CompletionAnswer {
    let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
    ask(&args::command(), &words)
}

fn names(asked: &CompletionAnswer) -> Vec<&str> {
    asked.candidates.iter().map(|(name, _)| name.as_str()).collect()
}

#[rstest]
#[case("wh", &["why"])]
#[case("class ", &["check", "help"])]
#[case("check ta", &["takeover"])]
#[case("why --name", &["--namespace"])]
#[case("why -o ", &["text", "json"])]
#[case("why --output=j", &["--output=json"])]
#[case("completion f", &["fish"])]
fn commands_flags_and_values_are_completed(#[case] line: &str, #[case] expected: &[&str]) {
    let asked = asked(line);
    let found = names(&asked);
    for name in expected.iter().filter(|name| **name != "help") {
        assert!(found.contains(name), "{line}: {found:?}");
    }
    assert!(found.iter().all(|name| name.starts_with(&asked.prefix)), "{line}: {found:?}");
}

#[test]
fn hidden_commands_are_not_offered() {
    let asked = asked("");
    assert!(!names(&asked).contains(&"__complete"), "{asked:?}");
}

#[rstest]
#[case("why ", Some(NameQuery::Objects(None)))]
#[case("why po", Some(NameQuery::Objects(None)))]
#[case("why mc/po", Some(NameQuery::Objects(Some("mc".to_owned()))))]
#[case("why -n ", Some(NameQuery::Namespaces))]
#[case("why pool ", None)]
#[case("scale po", Some(NameQuery::Objects(None)))]
#[case("scale pool --replicas ", None)]
#[case("machine replace ", Some(NameQuery::Of(MACHINES)))]
#[case("why --kubeconfig ", None)]
fn names_are_sought_where_a_name_belongs(#[case] line: &str, #[case] sought: Option<NameQuery>) {
    assert_eq!(asked(line).names, sought);
}

#[test]
fn the_cluster_is_that_of_the_words_before() {
    let asked = asked("why -n demo --kubeconfig=/k --context blue --as alice --as-group=ops po");
    assert_eq!((asked.namespace.as_deref(), asked.kubeconfig.as_deref()), (Some("demo"), Some("/k")));
    assert_eq!((asked.context.as_deref(), asked.as_user.as_deref()), (Some("blue"), Some("alice")));
    assert_eq!(asked.as_groups, ["ops"]);
    assert_eq!(asked.prefix, "po");
}

#[rstest]
#[case("why --kubeconfig ", true)]
#[case("class check -f ", true)]
#[case("why ", false)]
fn files_are_offered_where_a_file_belongs(#[case] line: &str, #[case] takes_file: bool) {
    assert_eq!(asked(line).takes_file, takes_file);
}

#[tokio::test]
async fn a_cluster_that_cannot_be_reached_is_silent() {
    let words = ["why", "--kubeconfig", "/nonexistent/config", "po"].map(str::to_owned);
    assert_eq!(super::complete(&words).await, ":4\n");
}
