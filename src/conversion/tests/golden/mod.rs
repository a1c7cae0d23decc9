//! One full example for each direction, as readable text.

use serde::Deserialize;
use serde_json::Value;

use super::{ConversionResult, objects, options, to_capi, to_native};
use crate as conversion;

fn read(text: &str) -> Vec<Value> {
    serde_yaml_ng::Deserializer::from_str(text).map(|document| Value::deserialize(document).unwrap()).collect()
}

fn written(conversion: &ConversionResult) -> String {
    assert_eq!(conversion.refusals, []);
    let documents: Vec<String> =
        conversion.objects.iter().map(|object| serde_yaml_ng::to_string(object).unwrap()).collect();
    let losses: String = conversion.losses.iter().map(|loss| format!("# lost: {loss}\n")).collect();
    format!("{losses}{}", documents.join("---\n"))
}

#[test]
fn a_full_deployment_of_cluster_api() {
    let given = read(include_str!("capi.yaml"));
    let native = to_native(&given);
    insta::assert_snapshot!("capi-to-native", written(&native));
    insta::assert_snapshot!("capi-to-native-to-capi", written(&to_capi(&objects(native))));
}

#[test]
fn a_full_native_deployment() {
    let given = read(include_str!("native.yaml"));
    let capi = conversion::to_capi(&given, &options());
    insta::assert_snapshot!("native-to-capi", written(&capi));
    insta::assert_snapshot!("native-to-capi-to-native", written(&to_native(&objects(capi))));
}

/// docs/cluster-api/conversion.md shows two examples, each followed by its result.
#[test]
fn the_examples_of_the_documentation_match_the_output_of_the_command() {
    let page = include_str!("../../../../docs/cluster-api/conversion.md");
    let blocks = page.split("```yaml\n").skip(1).map(|rest| read(rest.split("```").next().unwrap()));
    let [capi, native, given, made] = &blocks.collect::<Vec<_>>()[..] else { panic!("not four examples") };
    assert_eq!(&objects(to_native(capi)), native);
    assert_eq!(&objects(to_capi(given)), made);
    let back = objects(to_capi(native));
    assert_eq!(
        back.iter().map(|one| &one["kind"]).collect::<Vec<_>>(),
        capi.iter().map(|one| &one["kind"]).collect::<Vec<_>>()
    );
}
