use serde_json::json;

use super::{Action, Snapshot};
use mcm_api::{labels::CLASS_PROBLEMS, reasons::EventReason};
use mcm_driver::spec::ClassProblems;
use mcm_rules::plan::{Event, Plan, WaitKind};

/// An event message has at most 1024 bytes; the list of problems may take most of them.
const LONGEST_TEXT: usize = 800;

/// Stores the problems that the driver reported in an annotation of the class, with an event when they change.
pub(super) fn report(plan: &mut Plan<Action>, snapshot: &Snapshot) {
    let Some(problems) = &snapshot.problems else { return };
    if !problems.errors.is_empty() {
        let text = format!("the class to be corrected: {}", text_of(problems).unwrap_or_default());
        plan.wait(WaitKind::SpecCorrection, text, None);
    }
    let text = text_of(problems);
    let shown = snapshot.class.metadata.annotations.as_ref().and_then(|all| all.get(CLASS_PROBLEMS));
    if text.as_ref() == shown {
        return;
    }
    let patch = Action::PatchClass(json!({ "metadata": { "annotations": { CLASS_PROBLEMS: text } } }));
    match text {
        None => plan.then(patch, "the driver no longer reports problems with the class"),
        Some(text) => {
            let verdict = if problems.errors.is_empty() { "accepts the class, but" } else { "rejects the class" };
            let event = Event::warning(EventReason::InvalidSpec, format!("The driver {verdict}: {text}"));
            plan.then_recording(patch, "the driver reports other problems than the annotation shows", event)
        }
    };
}

/// Errors first. As many problems as fit, and the number of omitted ones.
fn text_of(problems: &ClassProblems) -> Option<String> {
    let errors = problems.errors.iter().map(ToString::to_string);
    let warnings = problems.warnings.iter().map(|problem| format!("{problem} (warning)"));
    let mut all = errors.chain(warnings);
    let mut text = all.next()?;
    let mut left_out = 0;
    for problem in all {
        if left_out == 0 && text.len() + problem.len() <= LONGEST_TEXT {
            text = format!("{text}; {problem}");
        } else {
            left_out += 1;
        }
    }
    Some(if left_out == 0 { text } else { format!("{text}; and {left_out} more") })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use rstest::rstest;
    use serde_json::Value;

    use super::*;
    use crate::machine_class::plan;

    fn problems(errors: &[&str], warnings: &[&str]) -> ClassProblems {
        let mut problems = ClassProblems::default();
        errors.iter().for_each(|path| problems.error(*path, "bad"));
        warnings.iter().for_each(|path| problems.warning(*path, "odd"));
        problems
    }

    fn snapshot(shown: Option<&str>, problems: Option<ClassProblems>) -> Snapshot {
        let class =
            json!({ "metadata": { "name": "c", "annotations": { CLASS_PROBLEMS: shown } }, "providerSpec": {} });
        let mut class = class;
        if shown.is_none() {
            class["metadata"]["annotations"] = json!({});
        }
        Snapshot {
            class: serde_json::from_value(class).unwrap(),
            machines_using: Vec::new(),
            unreadable_machines: Vec::new(),
            secrets: BTreeMap::new(),
            problems,
        }
    }

    /// The annotation after the plan, and the event.
    fn outcome(snapshot: &Snapshot) -> Option<(Value, Option<String>)> {
        let plan = plan(snapshot);
        assert!(plan.steps.len() <= 1);
        let step = plan.steps.into_iter().next()?;
        let Action::PatchClass(patch) = step.action else { panic!("{:?}", step.action) };
        Some((patch["metadata"]["annotations"][CLASS_PROBLEMS].clone(), step.event.map(|event| event.message)))
    }

    #[rstest]
    #[case::valid(None, problems(&[], &[]), None)]
    #[case::known(Some("a: bad"), problems(&["a"], &[]), None)]
    #[case::corrected(Some("a: bad"), problems(&[], &[]), Some((Value::Null, None)))]
    #[case::new(None, problems(&["a", "b"], &["c"]),
        Some((json!("a: bad; b: bad; c: odd (warning)"), Some("The driver rejects the class: a: bad; b: bad; c: odd (warning)"))))]
    #[case::others(Some("a: bad"), problems(&["b"], &[]), Some((json!("b: bad"), Some("The driver rejects the class: b: bad"))))]
    #[case::only_a_warning(None, problems(&[], &["c"]),
        Some((json!("c: odd (warning)"), Some("The driver accepts the class, but: c: odd (warning)"))))]
    fn the_class_shows_its_problems_and_each_change_of_them_is_one_event(
        #[case] shown: Option<&str>,
        #[case] problems: ClassProblems,
        #[case] expected: Option<(Value, Option<&str>)>,
    ) {
        let expected = expected.map(|(annotation, event)| (annotation, event.map(str::to_owned)));
        assert_eq!(outcome(&snapshot(shown, Some(problems))), expected);
    }

    #[test]
    fn a_class_that_another_process_serves_is_not_touched() {
        assert_eq!(outcome(&snapshot(Some("a: bad"), None)), None);
    }

    #[test]
    fn a_plan_waits_for_the_correction_of_errors_but_not_of_warnings() {
        let waits = |problems| plan(&snapshot(None, Some(problems))).waits;
        let texts: Vec<String> = waits(problems(&["a"], &["c"])).into_iter().map(|wait| wait.text).collect();
        assert_eq!(texts, ["the class to be corrected: a: bad; c: odd (warning)"]);
        assert_eq!(waits(problems(&[], &["c"])), []);
    }

    #[test]
    fn a_class_that_is_being_deleted_needs_no_correction() {
        let mut snapshot = snapshot(None, Some(problems(&["a"], &[])));
        let class = std::sync::Arc::make_mut(&mut snapshot.class);
        class.metadata.deletion_timestamp = serde_json::from_value(json!("2023-11-14T00:00:00Z")).unwrap();
        class.metadata.finalizers = Some(vec!["x".into()]);
        assert_eq!((outcome(&snapshot), plan(&snapshot).waits), (None, vec![]));
        snapshot.machines_using = vec!["m".into()];
        assert_eq!(outcome(&snapshot), None);
    }

    #[test]
    fn one_patch_at_a_time_is_sent_to_a_class() {
        let mut snapshot = snapshot(None, Some(problems(&["a"], &[])));
        snapshot.machines_using = vec!["m".into()];
        let finalizers =
            |action: &Action| matches!(action, Action::PatchClass(patch) if patch["metadata"]["finalizers"].is_array());
        assert!(plan(&snapshot).steps.iter().all(|step| finalizers(&step.action)));
        std::sync::Arc::make_mut(&mut snapshot.class).metadata.finalizers =
            Some(vec![mcm_api::labels::FINALIZER.to_owned()]);
        assert!(outcome(&snapshot).is_some());
    }

    #[test]
    fn the_text_is_bounded_and_says_how_much_it_leaves_out() {
        let paths: Vec<String> = (0..50).map(|number| format!("{number:0>40}")).collect();
        let text = text_of(&problems(&paths.iter().map(String::as_str).collect::<Vec<_>>(), &["w"])).unwrap();
        assert!(text.len() < LONGEST_TEXT + 20, "{}", text.len());
        let told = text.matches(": bad").count();
        assert!(text.ends_with(&format!("; and {} more", 51 - told)), "{text}");
    }
}
