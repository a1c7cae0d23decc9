//! The custom resource definitions as YAML.

/// One definition by kind, or all of them.
///
/// # Errors
/// When the kind is unknown.
pub fn render(_kind: Option<&str>) -> anyhow::Result<String> {
    anyhow::bail!("not wired")
}
