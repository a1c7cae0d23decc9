//! Dates of Kubernetes that cannot be represented.
//!
//! Kubernetes accepts every year of RFC 3339, also in other time zones, and in protobuf any second. jiff ends at
//! 9999-12-30T22:00:00Z. A date beyond, such as the usual "never", must not make an object undecodable: it becomes the
//! nearest date in the range.

use std::fmt;

use jiff::Timestamp;
use serde::{
    Deserialize, Deserializer,
    de::{
        DeserializeOwned, DeserializeSeed, EnumAccess, Error as _, IntoDeserializer, MapAccess, SeqAccess,
        VariantAccess, Visitor,
    },
};
use serde_json::{Map, Value};
use serde_path_to_error::Segment;

/// Names with which `k8s-openapi` deserializes its types of dates.
const DATES: [&str; 2] = ["Time", "MicroTime"];
/// A date before the year 0, which Go writes with a sign, becomes this one.
const FIRST: &str = "0000-01-01T00:00:00Z";
/// A date after the range becomes this one. Without a fraction, as Kubernetes writes it, so that it is equal to itself after a
/// write.
const LAST: &str = "9999-12-30T22:00:00Z";

/// Decodes JSON with all dates moved into the range. An error begins with the path of its field.
pub(super) fn within_range<T: DeserializeOwned>(text: &str) -> serde_json::Result<T> {
    let mut json = serde_json::Deserializer::from_str(text);
    let value = serde_path_to_error::deserialize(InRange(&mut json)).map_err(|error| {
        let path = Some(error.path().to_string()).filter(|path| path != ".");
        let path: Vec<String> = path.into_iter().chain(field_below::<T>(text, error.path())).collect();
        let error = error.into_inner();
        if path.is_empty() { error } else { serde_json::Error::custom(format!("{}: {error}", path.join("."))) }
    })?;
    json.end()?;
    Ok(value)
}

/// The field that cannot be decoded of the object at a path: a type with flattened parts loses its name. The text can be decoded
/// without it.
fn field_below<T: DeserializeOwned>(text: &str, path: &serde_path_to_error::Path) -> Option<String> {
    let document: Value = serde_json::from_str(text).ok()?;
    let fields = at(&mut document.clone(), path)?.keys().cloned().collect::<Vec<_>>();
    fields.into_iter().find(|field| {
        let mut rest = document.clone();
        at(&mut rest, path).is_some_and(|object| object.remove(field).is_some())
            && T::deserialize(InRange(rest)).is_ok()
    })
}

/// The object at a path of a document.
fn at<'a>(document: &'a mut Value, path: &serde_path_to_error::Path) -> Option<&'a mut Map<String, Value>> {
    let found = path.iter().try_fold(document, |value, segment| match segment {
        Segment::Map { key } => value.get_mut(key),
        Segment::Seq { index } => value.get_mut(index),
        Segment::Enum { .. } | Segment::Unknown => None,
    });
    found?.as_object_mut()
}

/// The nearest date that can be represented, if a text is a date and is not in the range.
fn nearest(text: &str) -> Option<String> {
    if text.parse::<Timestamp>().is_ok() {
        return None;
    }
    let (is_negative, unsigned) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let (year, rest) = unsigned.split_once('-')?;
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    // "12-31T23:59:59", then a fraction and a zone.
    let is_date = is_number(year) && rest.get(..14).is_some_and(has_shape) && rest.len() > 14;
    let is_beyond = year.trim_start_matches('0').len() > 4 || year == "9999";
    match (is_date, is_negative, is_beyond) {
        (true, true, _) => Some(FIRST.to_owned()),
        (true, false, true) => Some(LAST.to_owned()),
        _ => None,
    }
}

fn has_shape(rest: &str) -> bool {
    let digit_or = |(byte, expected): (u8, u8)| match expected {
        b'0' => byte.is_ascii_digit(),
        _ => byte.eq_ignore_ascii_case(&expected),
    };
    rest.bytes().zip(*b"00-00T00:00:00").all(digit_or)
}

/// Passes everything on, and moves the dates that it meets into the range. Values of any type are not changed: only the
/// type of a field shows that its text is a date.
struct InRange<T>(T);

macro_rules! pass_on {
    ($($method:ident($($argument:ident: $type:ty),*))*) => {$(
        fn $method<V: Visitor<'de>>(self, $($argument: $type,)* visitor: V) -> Result<V::Value, D::Error> {
            self.0.$method($($argument,)* InRange(visitor))
        }
    )*};
}

impl<'de, D: Deserializer<'de>> Deserializer<'de> for InRange<D> {
    type Error = D::Error;

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, name: &'static str, visitor: V) -> Result<V::Value, D::Error> {
        if !DATES.contains(&name) {
            return self.0.deserialize_newtype_struct(name, InRange(visitor));
        }
        let text = String::deserialize(self.0)?;
        visitor.visit_newtype_struct(nearest(&text).unwrap_or(text).into_deserializer())
    }

    pass_on! {
        deserialize_any() deserialize_bool()
        deserialize_i8() deserialize_i16() deserialize_i32() deserialize_i64() deserialize_i128()
        deserialize_u8() deserialize_u16() deserialize_u32() deserialize_u64() deserialize_u128()
        deserialize_f32() deserialize_f64() deserialize_char() deserialize_str() deserialize_string()
        deserialize_bytes() deserialize_byte_buf() deserialize_option() deserialize_unit()
        deserialize_unit_struct(name: &'static str)
        deserialize_seq() deserialize_tuple(len: usize)
        deserialize_tuple_struct(name: &'static str, len: usize)
        deserialize_map() deserialize_struct(name: &'static str, fields: &'static [&'static str])
        deserialize_enum(name: &'static str, variants: &'static [&'static str])
        deserialize_identifier() deserialize_ignored_any()
    }

    fn is_human_readable(&self) -> bool {
        self.0.is_human_readable()
    }
}

macro_rules! visit {
    ($($method:ident($type:ty))*) => {$(
        fn $method<E: serde::de::Error>(self, value: $type) -> Result<V::Value, E> {
            self.0.$method(value)
        }
    )*};
}

impl<'de, V: Visitor<'de>> Visitor<'de> for InRange<V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.expecting(f)
    }

    visit! {
        visit_bool(bool)
        visit_i8(i8) visit_i16(i16) visit_i32(i32) visit_i64(i64) visit_i128(i128)
        visit_u8(u8) visit_u16(u16) visit_u32(u32) visit_u64(u64) visit_u128(u128)
        visit_f32(f32) visit_f64(f64) visit_char(char)
        visit_str(&str) visit_borrowed_str(&'de str) visit_string(String)
        visit_bytes(&[u8]) visit_borrowed_bytes(&'de [u8]) visit_byte_buf(Vec<u8>)
    }

    fn visit_none<E: serde::de::Error>(self) -> Result<V::Value, E> {
        self.0.visit_none()
    }

    fn visit_unit<E: serde::de::Error>(self) -> Result<V::Value, E> {
        self.0.visit_unit()
    }

    fn visit_some<D: Deserializer<'de>>(self, value: D) -> Result<V::Value, D::Error> {
        self.0.visit_some(InRange(value))
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, value: D) -> Result<V::Value, D::Error> {
        self.0.visit_newtype_struct(InRange(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<V::Value, A::Error> {
        self.0.visit_seq(InRange(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, entries: A) -> Result<V::Value, A::Error> {
        self.0.visit_map(InRange(entries))
    }

    fn visit_enum<A: EnumAccess<'de>>(self, variant: A) -> Result<V::Value, A::Error> {
        self.0.visit_enum(InRange(variant))
    }
}

impl<'de, S: DeserializeSeed<'de>> DeserializeSeed<'de> for InRange<S> {
    type Value = S::Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<S::Value, D::Error> {
        self.0.deserialize(InRange(deserializer))
    }
}

impl<'de, A: SeqAccess<'de>> SeqAccess<'de> for InRange<A> {
    type Error = A::Error;

    fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, A::Error> {
        self.0.next_element_seed(InRange(seed))
    }

    fn size_hint(&self) -> Option<usize> {
        self.0.size_hint()
    }
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for InRange<A> {
    type Error = A::Error;

    fn next_key_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, A::Error> {
        self.0.next_key_seed(InRange(seed))
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, A::Error> {
        self.0.next_value_seed(InRange(seed))
    }

    fn size_hint(&self) -> Option<usize> {
        self.0.size_hint()
    }
}

impl<'de, A: EnumAccess<'de>> EnumAccess<'de> for InRange<A> {
    type Error = A::Error;
    type Variant = InRange<A::Variant>;

    fn variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<(S::Value, Self::Variant), A::Error> {
        let (value, variant) = self.0.variant_seed(InRange(seed))?;
        Ok((value, InRange(variant)))
    }
}

impl<'de, A: VariantAccess<'de>> VariantAccess<'de> for InRange<A> {
    type Error = A::Error;

    fn unit_variant(self) -> Result<(), A::Error> {
        self.0.unit_variant()
    }

    fn newtype_variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<S::Value, A::Error> {
        self.0.newtype_variant_seed(InRange(seed))
    }

    fn tuple_variant<V: Visitor<'de>>(self, len: usize, visitor: V) -> Result<V::Value, A::Error> {
        self.0.tuple_variant(len, InRange(visitor))
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, A::Error> {
        self.0.struct_variant(fields, InRange(visitor))
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::{
        api::{coordination::v1::Lease, core::v1::Pod, policy::v1::PodDisruptionBudget, storage::v1::VolumeAttachment},
        apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time},
    };
    use rstest::rstest;
    use serde_json::{Value, json};

    use crate::{
        decode::json,
        machine::{Machine, MachineDeployment, MachineSet},
        node::Node,
    };

    use super::*;

    #[rstest]
    #[case::never("9999-12-31T23:59:59Z", Some(LAST))]
    #[case::never_with_a_fraction("9999-12-31T23:59:59.123456Z", Some(LAST))]
    #[case::west("9999-12-30T12:00:00-12:00", Some(LAST))]
    #[case::five_digits("10000-01-01T11:59:59Z", Some(LAST))]
    #[case::last_second_of_protobuf("292277026596-12-04T15:30:07Z", Some(LAST))]
    #[case::before_the_year_zero("-001-12-31T12:00:00Z", Some(FIRST))]
    #[case::far_before("-292277022399-01-01T00:00:00Z", Some(FIRST))]
    #[case::zero_of_go("0001-01-01T00:00:00Z", None)]
    #[case::last("9999-12-30T22:00:00Z", None)]
    #[case::day("9999-12-31", None)]
    #[case::words("9999-tomorrow", None)]
    #[case::nothing("", None)]
    #[case::other_year("2024-13-31T23:59:59Z", None)]
    fn a_date_out_of_range_becomes_the_nearest_one(#[case] text: &str, #[case] expected: Option<&str>) {
        assert_eq!(nearest(text).as_deref(), expected);
        let read = json::<Time>(&json!(text).to_string());
        assert_eq!(read.is_ok(), expected.is_some() || text.parse::<Timestamp>().is_ok(), "{read:?}");
    }

    #[rstest]
    #[case::of_a_flattened_part(json!({ "metadata": {}, "spec": { "class": { "name": "a" }, "drainTimeout": "2 hours" } }), "spec.drainTimeout")]
    #[case::of_a_list(json!({ "status": { "conditions": [{ "type": 7 }] } }), "status.conditions[0].type")]
    #[case::of_a_map(json!({ "metadata": { "labels": { "a": 7 } } }), "metadata.labels.a")]
    fn an_error_begins_with_the_path_of_its_field(#[case] machine: Value, #[case] path: &str) {
        let error = json::<Machine>(&machine.to_string()).unwrap_err().to_string();
        assert!(error.starts_with(&format!("{path}: ")), "{error}");
    }

    fn dated(date: &str) -> Value {
        json!({ "metadata": metadata(date), "spec": {
            "taints": [{ "key": "k", "effect": "NoSchedule", "timeAdded": date }],
            "nodeTemplate": { "spec": { "taints": [{ "key": "k", "effect": "NoSchedule", "timeAdded": date }] } },
            "template": { "spec": {
                "containers": [],
                "nodeTemplate": { "spec": { "taints": [{ "key": "k", "effect": "NoSchedule", "timeAdded": date }] } },
            } },
            "renewTime": date, "acquireTime": date, "selector": {}, "containers": [],
            "attacher": "a", "nodeName": "n", "source": {},
        }, "status": {
            "startTime": date, "disruptedPods": { "pod": date }, "attached": true,
            "attachError": { "time": date }, "detachError": { "time": date },
            "conditions": [{
                "type": "Ready", "status": "True", "reason": "r", "message": "m",
                "lastHeartbeatTime": date, "lastTransitionTime": date, "lastUpdateTime": date, "lastProbeTime": date,
            }],
            "containerStatuses": [{
                "name": "c", "image": "i", "imageID": "i", "ready": true, "restartCount": 0,
                "state": { "running": { "startedAt": date } },
                "lastState": { "terminated": { "exitCode": 1, "startedAt": date, "finishedAt": date } },
            }],
            "lastOperation": { "lastUpdateTime": date }, "currentStatus": { "lastUpdateTime": date },
            "currentHealthCount": 1, "desiredHealthy": 1, "disruptionsAllowed": 0, "expectedPods": 1,
        } })
    }

    fn metadata(date: &str) -> Value {
        json!({
            "name": "x", "creationTimestamp": date, "deletionTimestamp": date,
            "annotations": { "expires": date }, "managedFields": [{ "manager": "m", "time": date }],
        })
    }

    fn read<T: DeserializeOwned + serde::Serialize>(date: &str) -> Value {
        let text = dated(date).to_string();
        let object: T = json(&text).unwrap_or_else(|error| panic!("{}: {error}", std::any::type_name::<T>()));
        serde_json::to_value(object).unwrap()
    }

    /// Every field of a date in every kind that is read.
    #[rstest]
    #[case::never("9999-12-31T23:59:59Z")]
    #[case::protobuf("292277026596-12-04T15:30:07Z")]
    #[case::zero_of_go("0001-01-01T00:00:00Z")]
    #[case::before_the_year_zero("-001-12-31T12:00:00Z")]
    fn every_kind_is_decoded_with_any_date(#[case] date: &str) {
        let objects = [
            read::<Node>(date),
            read::<Pod>(date),
            read::<PodDisruptionBudget>(date),
            read::<VolumeAttachment>(date),
            read::<Lease>(date),
            read::<Machine>(date),
            read::<MachineSet>(date),
            read::<MachineDeployment>(date),
        ];
        for object in objects {
            // Texts that are no dates of Kubernetes are as they were written.
            assert_eq!(object["metadata"]["annotations"]["expires"], date);
        }
    }

    #[test]
    fn a_date_is_the_same_after_it_was_written_and_read() {
        for date in [FIRST, LAST] {
            let read: Time = json(&json!(date).to_string()).unwrap();
            assert_eq!(serde_json::to_value(&read).unwrap(), date);
        }
    }

    #[test]
    fn the_rest_of_an_object_is_as_it_was_written() {
        let object: Machine = json(&dated("9999-12-31T23:59:59Z").to_string()).unwrap();
        let same: Machine = json(&dated(LAST).to_string()).unwrap();
        let without_annotations = |machine: &Machine| {
            let mut machine = machine.clone();
            machine.metadata.annotations = None;
            machine
        };
        assert_eq!(without_annotations(&object), without_annotations(&same));
        let meta: ObjectMeta = json(&metadata("9999-12-31T23:59:59Z").to_string()).unwrap();
        assert_eq!(serde_json::to_value(&meta).unwrap()["deletionTimestamp"], "9999-12-30T22:00:00Z");
    }

    #[test]
    fn a_text_after_the_object_is_an_error() {
        assert!(json::<Time>("\"9999-12-31T23:59:59Z\" x").is_err());
        assert!(json::<Time>("99991231").is_err());
    }
}
