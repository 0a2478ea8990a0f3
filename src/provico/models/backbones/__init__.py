"""Networks from clips to features, all of them by name in `registry`.

convolution     a 3-D convolution that is fast on a CPU
resnet3d        video ResNets, the networks of the paper; one for what moves beside one for what is there
efficientnet    a pretrained image network, for frozen features
frozen          networks that are used as they are
identity        which weights and code such a network has
engine          the same network, faster on a CPU
changes         features from maps of any network: what is there, and what changes
preprocessing   the clips that a published network was made for
hub, folder, transformers_model, timm_model, onnx_file   networks from elsewhere
registry        all of them by name
"""
