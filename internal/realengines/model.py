"""Writes a two-layer model with random weights of a real scale and a tokenizer, without any
download. Usage: model.py FOLDER. Small weights would hide a wrong KV."""
import sys

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

where, vocabulary = sys.argv[1], 2048
symbols = ["<s>", "</s>"] + sorted(pre_tokenizers.ByteLevel.alphabet())
symbols += [f"\u0120w{i}" for i in range(len(symbols), vocabulary)]
plain = Tokenizer(models.BPE({s: i for i, s in enumerate(symbols)}, []))
plain.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
plain.decoder = decoders.ByteLevel()
whole = PreTrainedTokenizerFast(tokenizer_object=plain, bos_token="<s>", eos_token="</s>", model_max_length=2048)
whole.chat_template = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}{% if add_generation_prompt %}assistant: {% endif %}"
whole.save_pretrained(where)

torch.manual_seed(7)
net = LlamaForCausalLM(LlamaConfig(vocab_size=vocabulary, hidden_size=128, intermediate_size=256, num_hidden_layers=2, num_attention_heads=4,
                                   num_key_value_heads=2, head_dim=32, max_position_embeddings=2048, tie_word_embeddings=False,
                                   bos_token_id=0, eos_token_id=1))
with torch.no_grad():
    for p in net.parameters():
        if p.dim() > 1:
            p.normal_(0, 0.3)
net.to(torch.bfloat16).save_pretrained(where)
