use proptest::prelude::*;
use rstest::rstest;
use serde_json::json;

use super::{problems::FieldProblem, scalar::integer, *};

const KNOWN: [&str; 8] = ["name", "count", "isFast", "mode", "timeout", "size", "tags", "disks"];

#[derive(Debug, Default, PartialEq)]
struct Spec {
    name: Option<String>,
    count: Option<i64>,
    is_fast: Option<bool>,
    mode: Option<&'static str>,
    timeout: Option<String>,
    size: Option<String>,
    tags: BTreeMap<String, String>,
    disks: Vec<(i64, Vec<String>)>,
}

fn read(value: &Value) -> (Spec, ClassProblems) {
    let mut problems = ClassProblems::default();
    let mut fields = FieldReader::of_spec(value, &KNOWN, &mut problems);
    let spec = Spec {
        name: fields.required("name", &string()),
        count: fields.optional("count", &integer(1..=9)),
        is_fast: fields.optional("isFast", &boolean()),
        mode: fields.optional("mode", &one_of(&["a", "b"])),
        timeout: fields.optional("timeout", &duration()).map(|duration| duration.to_string()),
        size: fields.object("size", &["amount"], |size| size.required("amount", &quantity())).map(|size| size.0),
        tags: fields.map("tags", &text()),
        disks: fields.objects("disks", &["gigabytes", "labels"], |disk| {
            let (size, labels) = (disk.required("gigabytes", &integer(0..=100)), disk.list("labels", &string()));
            Some((size?, labels))
        }),
    };
    (spec, problems)
}

fn texts(problems: &[FieldProblem]) -> Vec<String> {
    problems.iter().map(FieldProblem::to_string).collect()
}

#[test]
fn keys_of_every_kind_of_field_are_case_insensitive() {
    let (spec, problems) = read(&json!({
        "NAME": "x", "Count": 9, "isfast": true, "mode": "b", "timeOut": "90s", "size": {"AMOUNT": "1Gi"},
        "tags": {"Key": ""}, "DISKS": [{"GigaBytes": 0, "labels": ["l"]}, {"gigabytes": 100}],
    }));
    let expected = Spec {
        name: Some("x".into()),
        count: Some(9),
        is_fast: Some(true),
        mode: Some("b"),
        timeout: Some("1m30s".into()),
        size: Some("1Gi".into()),
        tags: [("Key".into(), String::new())].into(),
        disks: vec![(0, vec!["l".into()]), (100, vec![])],
    };
    assert_eq!((spec, problems), (expected, ClassProblems::default()));
}

#[rstest]
#[case(json!(7), &["providerSpec: expected an object, found the number 7", "providerSpec.name: expected a non-empty string, found nothing"])]
#[case(json!({"name": null}), &["providerSpec.name: expected a non-empty string, found nothing"])]
#[case(json!({"name": ""}), &["providerSpec.name: expected a non-empty string, found an empty string"])]
#[case(json!({"name": "x", "Name": "y"}), &["providerSpec.name: given twice, in different spellings"])]
#[case(json!({"name": "x", "count": 0}), &["providerSpec.count: expected a whole number from 1 to 9, found the number 0"])]
#[case(json!({"name": "x", "count": 10}), &["providerSpec.count: expected a whole number from 1 to 9, found the number 10"])]
#[case(json!({"name": "x", "count": 1.5}), &["providerSpec.count: expected a whole number from 1 to 9, found a fractional number"])]
#[case(json!({"name": "x", "mode": "A"}), &[r#"providerSpec.mode: expected one of a, b, found the string "A""#])]
#[case(json!({"name": "x", "size": {}}), &[r#"providerSpec.size.amount: expected a quantity such as "4", "500m" or "16Gi", found nothing"#])]
#[case(json!({"name": "x", "size": "1Gi"}), &[r#"providerSpec.size: expected an object, found the string "1Gi""#, r#"providerSpec.size.amount: expected a quantity such as "4", "500m" or "16Gi", found nothing"#])]
#[case(json!({"name": "x", "tags": {"a": 1, "b": "ok", "c": []}}), &["providerSpec.tags.a: expected a string, found the number 1", "providerSpec.tags.c: expected a string, found a list"])]
#[case(json!({"name": "x", "tags": []}), &["providerSpec.tags: expected an object, found a list"])]
#[case(json!({"name": "x", "disks": {}}), &["providerSpec.disks: expected a list, found an object"])]
#[case(json!({"name": "x", "disks": [null, {"gigabytes": 101}, {"gigabytes": 1, "labels": ["", 2]}]}), &[
    "providerSpec.disks[0]: expected an object, found null",
    "providerSpec.disks[1].gigabytes: expected a whole number from 0 to 100, found the number 101",
    "providerSpec.disks[2].labels[0]: expected a non-empty string, found an empty string",
    "providerSpec.disks[2].labels[1]: expected a non-empty string, found the number 2",
])]
#[case(json!({"count": 0, "isFast": "yes"}), &[
    "providerSpec.name: expected a non-empty string, found nothing",
    "providerSpec.count: expected a whole number from 1 to 9, found the number 0",
    r#"providerSpec.isFast: expected true or false, found the string "yes""#,
])]
fn all_errors_are_reported_with_path_expectation_and_finding(#[case] value: Value, #[case] expected: &[&str]) {
    let (_, problems) = read(&value);
    assert_eq!(texts(&problems.errors), expected);
    assert_eq!(texts(&problems.warnings), [""; 0]);
    let error = problems.to_result().unwrap_err();
    assert_eq!((error.code.as_str(), error.message), ("InvalidArgument", expected.join("; ")));
}

#[rstest]
#[case(json!({"tiemout": "1s"}), "providerSpec.tiemout: unknown field, ignored: did you mean timeout?")]
#[case(json!({"TAG": {}}), "providerSpec.TAG: unknown field, ignored: did you mean tags?")]
#[case(json!({"region": 1}), "providerSpec.region: unknown field, ignored: known are name, count, isFast, mode, timeout, size, tags, disks")]
#[case(json!({"a]b[\n": 1}), "providerSpec.a)b( : unknown field, ignored: known are name, count, isFast, mode, timeout, size, tags, disks")]
#[case(json!({"size": {"amount": 1, "amuont": 2}}), "providerSpec.size.amuont: unknown field, ignored: did you mean amount?")]
fn an_unknown_key_is_a_warning_with_the_nearest_spelling(#[case] mut value: Value, #[case] expected: &str) {
    value["name"] = json!("x");
    let (_, problems) = read(&value);
    assert_eq!(problems.errors, []);
    assert_eq!(texts(&problems.warnings), [expected]);
    problems.to_result().unwrap();
}

fn any_json() -> impl Strategy<Value = Value> {
    let key = prop_oneof![
        proptest::sample::select(KNOWN.to_vec()).prop_map(str::to_owned),
        proptest::sample::select(vec!["amount", "gigabytes", "LABELS", "secret", "a]b"]).prop_map(str::to_owned),
    ];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        ".{0,60}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 40, 6, move |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            proptest::collection::btree_map(key.clone(), inner, 0..6)
                .prop_map(|object| Value::Object(object.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn whatever_is_given_each_problem_has_a_path_and_fits_into_a_machine_code_message(value in any_json()) {
        let (spec, problems) = read(&value);
        prop_assert_eq!(spec.name.is_none(), problems.errors.iter().any(|one| one.path == "providerSpec.name"
            && !one.text.starts_with("given twice")));
        for problem in problems.errors.iter().chain(&problems.warnings) {
            prop_assert!(problem.path.starts_with("providerSpec"));
            let text = problem.to_string();
            prop_assert!(text.chars().count() < 400 && !text.chars().any(char::is_control), "{text}");
            prop_assert_eq!(text.matches('[').count(), text.matches(']').count());
        }
    }

    #[test]
    fn the_case_of_keys_makes_no_difference(value in any_json(), upper in any::<bool>()) {
        let Value::Object(object) = &value else { return Ok(()) };
        let fold = |key: &str| if upper { key.to_ascii_uppercase() } else { key.to_ascii_lowercase() };
        let folded = Value::Object(object.iter().map(|(key, value)| (fold(key), value.clone())).collect());
        prop_assert_eq!(read(&value).0, read(&folded).0);
    }
}

#[test]
fn the_first_problems_of_a_wholly_wrong_spec_are_reported() {
    let disks: Vec<Value> = (0..1000).map(Value::from).collect();
    let (_, problems) = read(&json!({"name": "x", "disks": disks}));
    assert_eq!(problems.errors.len(), 50);
}

/// Keys as long as those with a nearest name may be, which would take half a minute or more for all of them in a debug build.
#[rstest]
#[case::of_the_spec(json!((0..150_000).map(|index| (format!("unknownKey{index:054}"), json!(1))).collect::<Map<_, _>>()))]
#[case::of_many_objects(json!({ "name": "x", "disks": (0..30_000).map(|index| json!({ "gigabytes": 1, format!("label{index}"): 1 })).collect::<Vec<_>>() }))]
fn any_number_of_unknown_keys_is_read_at_once(#[case] spec: Value) {
    let began = std::time::Instant::now();
    let (_, problems) = read(&spec);
    assert_eq!(problems.warnings.len(), 50);
    assert!(!problems.lists_more_warnings());
    assert!(began.elapsed() < std::time::Duration::from_secs(20), "{:?}", began.elapsed());
}
