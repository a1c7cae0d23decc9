//! Replacements of machines that `mcm machine replace` has begun. Pure.

use kube::ResourceExt;

use crate::story::{DEPLOYMENT, MACHINE, NamespaceFacts, SET};
use mcm_api::labels::REPLACEMENT;
use mcm_rules::plan::SubjectRef;

/// A replacement of a machine, or of one of a deployment or set, that has begun, with the commands that continue it and give it up.
pub fn note(facts: &NamespaceFacts, object: &SubjectRef) -> Option<String> {
    let names = match object.kind.as_str() {
        MACHINE => vec![object.name.clone()],
        DEPLOYMENT | SET => facts.machines_below(object),
        _ => Vec::new(),
    };
    let is_begun = |name: &&String| {
        let machine = facts.machines.get(*name).filter(|machine| !machine.is_terminating());
        machine.is_some_and(|machine| machine.annotations().contains_key(REPLACEMENT))
    };
    let name = names.iter().find(is_begun)?;
    let command = format!("mcm machine replace {name} -n {}", facts.namespace);
    let call = &facts.place.call;
    let (goes_on, stops) = (call.addressed(&command, false), call.addressed(&format!("{command} --stop"), false));
    Some(format!("the replacement of Machine {name} has begun: {goes_on} continues it, and {stops} gives it up"))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;
    use crate::testing::{machine, pool};

    #[rstest]
    #[case::of_the_machine(MACHINE, "pool-84dff-a", true)]
    #[case::of_its_deployment(DEPLOYMENT, "pool", true)]
    #[case::of_another_machine(MACHINE, "pool-84dff-b", false)]
    #[case::of_another_set(SET, "pool-6d689", false)]
    fn a_replacement_that_has_begun_is_named_with_its_ends(
        #[case] kind: &str,
        #[case] name: &str,
        #[case] is_named: bool,
    ) {
        let record = json!({ "metadata": { "annotations": { REPLACEMENT: "replicas=2,available=1,others=-b" } } });
        let with = |suffix: &str, more| machine("pool-84dff", suffix, "small", "Running", more);
        let facts = pool(3, vec![with("a", &record), with("b", &json!({}))]);
        let expected = "the replacement of Machine pool-84dff-a has begun: mcm machine replace pool-84dff-a -n demo continues it, \
                        and mcm machine replace pool-84dff-a -n demo --stop gives it up";
        let found = note(&facts, &facts.subject(kind, name));
        assert_eq!(found.as_deref(), is_named.then_some(expected));
    }
}
