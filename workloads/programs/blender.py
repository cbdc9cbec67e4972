"""A scene of a thousand spheres and their modifiers, rendered by the processor."""

import sys

import bpy

bpy.ops.wm.read_factory_settings(use_empty=True)
scene = bpy.context.scene
bpy.ops.mesh.primitive_uv_sphere_add(segments=24, ring_count=12)
first = bpy.context.object
first.modifiers.new("smooth", "SUBSURF").levels = 1
for n in range(1, 400):
    copy = first.copy()
    copy.data = first.data.copy()
    copy.location = (n % 20 * 2.5, n // 20 * 2.5, 0)
    scene.collection.objects.link(copy)
bpy.ops.object.light_add(type="SUN", location=(0, 0, 10))
bpy.ops.object.camera_add(location=(24, 24, 90), rotation=(0, 0, 0))
scene.camera = bpy.context.object
scene.render.engine = "CYCLES"
scene.cycles.device = "CPU"
scene.cycles.samples = 1
scene.cycles.use_denoising = False
scene.render.threads_mode = "FIXED"
scene.render.threads = 2
scene.render.resolution_x, scene.render.resolution_y = 160, 120
scene.render.filepath = sys.argv[-1]
bpy.ops.render.render(write_still=True)
