//! Secrets with the bootstrap data of a VM. Their content is copied only to the other side's Secret.

use k8s_openapi::{ByteString, api::core::v1::Secret, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use serde_json::Value;

use crate::{
    answers::TemplateQuestion,
    input::ConversionInput,
    keys::MetadataMap,
    notes::{BOOTSTRAP_FORMAT, MADE_FROM},
    options::ConversionOptions,
    report::ConversionReport,
    template::{TemplateLocation, TemplateOwner},
    types::{Bootstrap, ObjectRef, names},
};
use mcm_api::machine::MachineClass;

/// Key of the data in a native Secret.
pub const USER_DATA: &str = "userData";
/// Keys in a bootstrap Secret.
pub const VALUE: &str = "value";
const FORMAT: &str = "format";
const DEFAULT_FORMAT: &str = "cloud-config";
/// Placeholders that native controllers replace in user data, even as part of a URL.
const PLACEHOLDERS: [&str; 4] =
    ["<<BOOTSTRAP_TOKEN>>", "%3C%3CBOOTSTRAP_TOKEN%3E%3E", "<<MACHINE_NAME>>", "%3C%3CMACHINE_NAME%3E%3E"];

/// The bootstrap Secret with the user data of a class.
pub fn bootstrap_secret_of(class: &str) -> String {
    format!("{class}-bootstrap")
}

/// The native Secret with the data of a bootstrap Secret.
pub fn user_data_of(secret: &str) -> String {
    format!("{secret}-userdata")
}

/// Name of the Secret with the bootstrap data. The answer of the user replaces the object of a bootstrap provider.
pub fn data_secret_name(bootstrap: &Bootstrap, place: &TemplateLocation<'_>, report: &mut ConversionReport) -> String {
    let at = place.prefix();
    let name = bootstrap.data_secret_name.clone().unwrap_or_default();
    if bootstrap.config_ref != ObjectRef::default() {
        if let Some(answer) = place.options.answers.get(TemplateQuestion::BootstrapSecret, place.name) {
            return answer.to_owned();
        }
        report.refuse(
            format!("{at}spec.bootstrap.configRef"),
            "MCM creates no bootstrap data (BootstrapConfigRefUnsupported)",
            "name a Secret with reusable join data in dataSecretName instead, or in --bootstrap-secret of mcm convert",
        );
    } else if name.is_empty() {
        report.refuse(
            format!("{at}spec.bootstrap.dataSecretName"),
            "is absent: a VM would boot without data",
            "name a Secret with reusable join data",
        );
    }
    name
}

/// The Secret of a class has the data of a bootstrap Secret. A Secret that is not among the objects is assumed to be right.
pub fn has_data_of(
    class: Option<&MachineClass>,
    name: &str,
    place: &TemplateLocation<'_>,
    report: &mut ConversionReport,
) -> bool {
    if class.is_some_and(|class| class.secret_ref.is_none()) {
        return false;
    }
    let Some(data) = place.input.secret(place.namespace, name).and_then(|secret| data_of(&secret, VALUE)) else {
        return true;
    };
    let own = class.and_then(|class| place.input.secret(place.namespace, &class.secret_ref.as_ref()?.name));
    let Some(own) = own else {
        report.lose(
            format!("{}spec.bootstrap.dataSecretName", place.prefix()),
            format!("Secret {name} is not written: the class has another Secret, which is not among the objects"),
            format!("compare its {USER_DATA} with the {VALUE} of {name}"),
        );
        return true;
    };
    data_of(&own, USER_DATA) == Some(data)
}

/// The native Secret with the data of a bootstrap Secret. The data is passed on as it is, whatever its format.
pub fn to_native(name: &str, place: &TemplateLocation<'_>, report: &mut ConversionReport) -> Option<Value> {
    let source = place.input.secret(place.namespace, name)?;
    let value = data_of(&source, VALUE)?;
    if let Some(placeholder) = placeholder_in(&value) {
        report.refuse(
            format!("{}spec.bootstrap.dataSecretName", place.prefix()),
            format!("the data in Secret {name} has {placeholder}, which MCM would replace"),
            "use data without it",
        );
    }
    let mut annotations = MetadataMap::from([(MADE_FROM.to_owned(), format!("Secret/{name}"))]);
    if let Some(format) = data_of(&source, FORMAT) {
        annotations.insert(BOOTSTRAP_FORMAT.to_owned(), String::from_utf8_lossy(&format.0).into_owned());
    }
    let metadata = ObjectMeta { annotations: Some(annotations), ..metadata(user_data_of(name), place) };
    let data = Some([(USER_DATA.to_owned(), value)].into());
    serde_json::to_value(Secret { metadata, data, ..Secret::default() }).ok()
}

/// [`to_native`] for a Secret alone. An error contains the reason, and never the data.
pub fn user_data_secret(source: &Value) -> Result<Value, String> {
    let objects = [source.clone()];
    let (input, options) = (ConversionInput::from_values(&objects), ConversionOptions::default());
    let text = |pointer: &str| source.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let (name, namespace) = (text("/metadata/name"), text("/metadata/namespace"));
    let meta = metadata_in(name.to_owned(), namespace);
    let place = TemplateLocation::new(TemplateOwner::Deployment, &meta, "", None, &options, &input);
    let mut report = ConversionReport::new("Secret", name);
    let made = to_native(name, &place, &mut report);
    match (report.refusals.first(), made) {
        (Some(refusal), _) => Err(format!("{}; {}", refusal.reason, refusal.advice)),
        (None, Some(made)) => Ok(made),
        (None, None) => Err(format!("Secret {name} has no data under the key {VALUE}; add it")),
    }
}

/// The bootstrap Secret of a native class. `None` if its source is not there.
pub fn to_capi(
    class: Option<&MachineClass>,
    name: &str,
    place: &TemplateLocation<'_>,
    report: &mut ConversionReport,
) -> Option<Value> {
    let secret_ref = class?.secret_ref.as_ref()?;
    let source = place.input.secret(place.namespace, &secret_ref.name)?;
    let user_data = data_of(&source, USER_DATA)?;
    if let Some(placeholder) = placeholder_in(&user_data) {
        report.refuse(
            format!("{}spec.class", place.prefix()),
            format!("userData in Secret {} has {placeholder}, which Cluster API does not replace", secret_ref.name),
            format!("leave the Secret out, and create Secret {name} with complete join data"),
        );
    }
    let annotations = source.metadata.annotations.unwrap_or_default();
    let format = annotations.get(BOOTSTRAP_FORMAT).cloned().unwrap_or_else(|| DEFAULT_FORMAT.to_owned());
    let labels = Some([(names::CLUSTER_NAME.to_owned(), place.cluster.to_owned())].into());
    let secret = Secret {
        metadata: ObjectMeta { labels, ..metadata(name.to_owned(), place) },
        type_: Some(names::SECRET_TYPE.to_owned()),
        data: Some([(VALUE.to_owned(), user_data), (FORMAT.to_owned(), ByteString(format.into_bytes()))].into()),
        ..Secret::default()
    };
    serde_json::to_value(secret).ok()
}

fn metadata(name: String, place: &TemplateLocation<'_>) -> ObjectMeta {
    metadata_in(name, place.namespace)
}

fn metadata_in(name: String, namespace: &str) -> ObjectMeta {
    let namespace = crate::metadata::namespace(namespace);
    ObjectMeta { name: Some(name), namespace, ..ObjectMeta::default() }
}

fn placeholder_in(data: &ByteString) -> Option<&'static str> {
    let text = String::from_utf8_lossy(&data.0);
    PLACEHOLDERS.into_iter().find(|placeholder| text.contains(placeholder))
}

fn data_of(secret: &Secret, key: &str) -> Option<ByteString> {
    let plain =
        secret.string_data.as_ref().and_then(|data| data.get(key)).map(|text| ByteString(text.clone().into_bytes()));
    plain.or_else(|| secret.data.as_ref()?.get(key).cloned())
}
