"""The shared libraries that a C++ target links and that do not belong to the system, as files."""

def _dynamic_libraries_impl(ctx):
    files = []
    for linked in ctx.attr.of[CcInfo].linking_context.linker_inputs.to_list():
        for library in linked.libraries:
            file = library.resolved_symlink_dynamic_library or library.dynamic_library
            if file and not library.pic_static_library and not library.static_library:
                files.append(file)
    return [DefaultInfo(files = depset(files))]

dynamic_libraries = rule(
    implementation = _dynamic_libraries_impl,
    attrs = {"of": attr.label(mandatory = True, providers = [CcInfo])},
)
