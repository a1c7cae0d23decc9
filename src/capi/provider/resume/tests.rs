use std::collections::BTreeSet;

use super::{Action, ResumedClusters, Snapshot, plan::plan};

fn uids(all: &[&str]) -> BTreeSet<String> {
    all.iter().map(|uid| (*uid).to_owned()).collect()
}

#[test]
fn one_read_serves_all_clusters_whose_pause_ended() {
    let steps = plan(&Snapshot { unread: uids(&["a", "b"]) }).steps;
    assert_eq!(steps.into_iter().map(|step| step.action).collect::<Vec<_>>(), [Action::Read(uids(&["a", "b"]))]);
    assert!(plan(&Snapshot { unread: BTreeSet::new() }).steps.is_empty());
}

/// MV4, MV5: otherwise a set that does not see its moved Machines yet would create others.
#[test]
fn a_cluster_that_is_paused_during_the_read_is_read_again() {
    let resumed = ResumedClusters::default();
    resumed.begin(&uids(&["a", "b"]));
    assert!(!resumed.contains("a"), "the read is not over");
    resumed.forget("b");
    resumed.finish(&uids(&["a", "b"]));
    assert!(resumed.contains("a") && !resumed.contains("b"));
    resumed.forget("a");
    assert!(!resumed.contains("a"));
}
